"""What a judge is asked, as data: the built-in texts, or those of a file of the user's."""

import re
import tomllib

import msgspec

from ..engine.errors import UsageError
from ..engine.user_path import user_path
from .nearest import nearest, shown

FILE_BYTES_MAX = 1 << 20

_PLACE = re.compile(r"\{(problem|solution|critique|first|second)\}")


class JudgePrompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts with places in braces; all other braces stand as they are.

    `verdict` asks whether {solution} solves {problem}, `critique` for a check of it in words, `conclude` for
    the verdict after that {critique}; `yes` and `no` are the two verdicts as the model says them. `score`
    asks for a digit from 0 to 9. `compare` asks which of {first} and {second} is better, named `one` and
    `two`.
    """

    verdict: str
    critique: str
    conclude: str
    score: str
    compare: str
    yes: str = "Yes"
    no: str = "No"
    one: str = "A"
    two: str = "B"


BUILT_IN = JudgePrompts(
    verdict=(
        "Problem:\n{problem}\n\nProposed solution:\n{solution}\n\n"
        "Is the proposed solution correct? Answer with one word, Yes or No."
    ),
    critique=(
        "Problem:\n{problem}\n\nProposed solution:\n{solution}\n\n"
        "Check the proposed solution step by step, and say of each step whether it is right. "
        "Stop at the first error, if there is one."
    ),
    conclude=(
        "Problem:\n{problem}\n\nProposed solution:\n{solution}\n\nA check of it:\n{critique}\n\n"
        "Is the proposed solution correct? Answer with one word, Yes or No."
    ),
    score=(
        "Problem:\n{problem}\n\nProposed solution, perhaps unfinished:\n{solution}\n\n"
        "How good is it so far? Answer with one digit, from 0 (wrong) to 9 (certainly right)."
    ),
    compare=(
        "Problem:\n{problem}\n\nSolution A:\n{first}\n\nSolution B:\n{second}\n\n"
        "Which of the two is the better solution? Answer with one letter, A or B."
    ),
)


def filled(text: str, **values: str) -> str:
    """The text with every place filled, at once: a place within a value stays what it is."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def read_prompts(path: str) -> JudgePrompts:
    """The built-in texts with those of a TOML file in their place.

    Raises `UsageError` where it cannot be read, names no such text, or a text lacks a place that it needs.
    """
    owner = f"verifier judge: template={shown(path)}"
    try:
        file = user_path(path)
        if file.exists() and not file.is_file():
            raise UsageError(f"{owner}: is no file; give a TOML file")  # a device has no end, a pipe may wait
        raw = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{owner}: cannot be read ({reason}); give a TOML file") from error
    if len(raw) > FILE_BYTES_MAX:
        raise UsageError(f"{owner}: holds {len(raw)} bytes; give at most {FILE_BYTES_MAX}")
    try:
        given = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{owner}: is not TOML ({error})") from error
    for name, text in given.items():
        _check_text(owner, name, text)
    prompts = msgspec.structs.replace(BUILT_IN, **given)
    if prompts.yes == prompts.no or prompts.one == prompts.two:
        raise UsageError(f"{owner}: yes and no, and one and two, must be different words")
    return prompts


def _check_text(owner: str, name: str, text: object) -> None:
    known = JudgePrompts.__struct_fields__
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UsageError(f"{owner}: {shown(name)} is no text of a judge; {hint}there are: {', '.join(known)}")
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{owner}: {name}={shown(text)}: give a text")
    for place in dict.fromkeys(_PLACE.findall(getattr(BUILT_IN, name))):
        if f"{{{place}}}" not in text:
            raise UsageError(f"{owner}: {name} has no place {{{place}}}; write it where the {place} goes")
