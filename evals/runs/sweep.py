"""Sweeps: one text of the strategy grammar that names several strategies.

A parameter may take a list, `n=4,16,64`, or a range of integers: `n=4..64*2` doubles from 4 up to 64,
`n=4..64+4` adds 4. Several swept parameters give every combination, the first one varying slowest.
"""

import itertools
import re
from collections.abc import Iterable

from ...engine.errors import UsageError
from ...strategies.grammar import format_strategy, parse_strategy
from ...verifiers.nearest import shown

MOST_STRATEGIES = 1000
"""Strategies that the sweeps of one run may name."""

_CALL = re.compile(r"\s*([A-Za-z_][\w-]*)\s*\((.*)\)\s*", re.DOTALL)
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:([*+])(\d+))?")
_SETTING = re.compile(r"\s*[A-Za-z_]\w*\s*=")
_OPENING, _CLOSING = "([{", ")]}"


def expand_strategies(texts: Iterable[str]) -> tuple[str, ...]:
    """All strategies that the texts name, with the parameters that each gives, without repeats, in order.

    Raises `UsageError` in one line.
    """
    found: dict[str, str] = {}
    for text in texts:
        for single in _expand(text):
            found.setdefault(format_strategy(parse_strategy(single)), single)
            if len(found) > MOST_STRATEGIES:
                raise UsageError(f"sweep {shown(text)}: more than {MOST_STRATEGIES} strategies; narrow it")
    return tuple(found.values())


def _expand(text: str) -> list[str]:
    call = _CALL.fullmatch(text)
    if call is None:
        return [text.strip()]
    settings = [_alternatives(setting, text) for setting in _settings(call[2])]
    if not settings:
        return [call[1]]
    return [f"{call[1]}({', '.join(chosen)})" for chosen in itertools.product(*settings)]


def _settings(body: str) -> list[str]:
    """`n=4,16, select=majority` to `n=4,16` and `select=majority`: a part without a name goes with the one
    before it."""
    settings: list[str] = []
    for part in split_commas(body):
        if settings and not _SETTING.match(part):
            settings[-1] += f",{part}"
        else:
            settings.append(part)
    return settings


def _alternatives(setting: str, whole: str) -> list[str]:
    name, sign, values = setting.partition("=")
    if not sign:
        return [setting]
    listed = [value.strip() for value in split_commas(values) or [""]]
    if len(listed) > 1 and "" in listed:
        raise UsageError(
            f"sweep {setting.strip()} in {shown(whole)}: has an empty value; write it like n=4,16"
        )
    alternatives = [one for value in listed for one in _values(value, whole)]
    return [f"{name.strip()}={value}" for value in alternatives]


def _values(value: str, whole: str) -> list[str]:
    if match := _RANGE.fullmatch(value):
        return list(map(str, _range(match, whole)))
    if value[:1] in _OPENING or value[:1] in "'\"":
        return [value]
    if ".." in value and not _CALL.fullmatch(value):
        raise UsageError(
            f"sweep {value} in {shown(whole)}: write it in whole numbers, like 4..64*2 (doubling) or 4..64+4"
        )
    return _expand(value)


def _range(match: re.Match[str], whole: str) -> list[int]:
    first, last, step = int(match[1]), int(match[2]), int(match[4] or 1)
    doubling = match[3] == "*"
    if last < first or step < (2 if doubling else 1) or (doubling and first < 1):
        raise UsageError(
            f"sweep {match[0]} in {shown(whole)}: write it upwards, like 4..64*2 (doubling) or 4..64+4"
        )
    values = [first]
    while (following := values[-1] * step if doubling else values[-1] + step) <= last:
        values.append(following)
        if len(values) > MOST_STRATEGIES:
            raise UsageError(f"sweep {match[0]}: more than {MOST_STRATEGIES} values; narrow it")
    return values


def split_commas(text: str) -> list[str]:
    """Parts between the commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts if parts != [""] else []
