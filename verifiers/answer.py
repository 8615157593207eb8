r"""Comparing answers: the key under which equal answers vote together.

Two answers are the same when their keys are. The fast path here reads integers, fractions, decimals,
percents, scientific notation, tuples, sets, intervals, lists and choice letters exactly, as text: nothing is
evaluated or rounded, so 1234567 and 1234571 differ, and so do 50 and 50 %. What it cannot read is compared
as normalised text; `compare` has a symbolic tier between the two.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

from .extraction import closing_braces, extract_answer

__all__ = ["canonical", "equivalent", "extract_answer", "is_number", "is_words", "split", "tidy"]

DIGITS_MAX = 400
"""Longer numbers, and larger decimal exponents, are compared as text."""
ANSWER_MAX = 4000
"""Answers of more characters are compared as they stand."""
BRACKETS_MAX = 64
"""Answers with more opening brackets are compared as text."""

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "×": "*", "⋅": "*", "·": "*", "÷": "/", "⁄": "/", "∕": "/",
        "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "∈": r"\in ",
        "∪": r"\cup ", "±": r"\pm ", "°": "", "’": "'",
        "₂": "_2", "⁰": "^0", "¹": "^1", "²": "^2", "³": "^3",
        "⁴": "^4", "⁵": "^5", "⁶": "^6", "⁷": "^7", "⁸": "^8", "⁹": "^9", "⁻": "^-",
    }
)  # fmt: skip
_VULGAR_FRACTIONS = str.maketrans(
    {sign: " " + unicodedata.normalize("NFKC", sign) for sign in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
)
_SPACING = re.compile(r"(?<!\\)\\(?:[,;: ]|quad|qquad|thinspace)|~")
_DROPPED = re.compile(r"\\(?:left|right|displaystyle|!)(?![A-Za-z])|\^\{?\\circ\}?|\\\$|[$€£]")
_SYNONYMS = (
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\s*\\(?:cdot|times)(?![A-Za-z])\s*"), "*"),
    (re.compile(r"\s*\\div(?![A-Za-z])\s*"), "/"),
    (re.compile(r"\\geq(?![A-Za-z])"), r"\\ge"),
    (re.compile(r"\\leq(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\{,\}"), ","),
)
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*\{")
_SCALE_WORDS = re.compile(r"hundred|thousand|million|billion|trillion|dozen|percent|and|or", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"^\s*[A-Za-z]\w?\s*=(?!=)\s*(?=\S)")

_INTEGER = r"(?:\d{1,3}(?:[ ,]\d{3})+|\d+)"
_DECIMAL = re.compile(
    rf"([-+]?)\s*({_INTEGER}?)(?:\.(\d*))?(?:[eE]([-+]?\d+)|\s*\*\s*10\^\{{?([-+]?\d+)\}}?)?\s*(%?)"
)
_RATIO = re.compile(rf"([-+]?)\s*(?:(\d+)\s+)?({_INTEGER})\s*/\s*({_INTEGER})")
_LATEX_RATIO = re.compile(
    r"([-+]?)\s*(\d*)\s*\\frac\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))\s*(?:\{\s*([-+]?\d+)\s*\}|(\d))"
)
_REPEATING = re.compile(r"([-+]?)\s*(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?(\d+)\}?")
_NUMBER_KEY = re.compile(r"-?\d+(?:/\d+)?")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d|\{[^{}]*\})\s*(\d|\{[^{}]*\})")
_CHOICE = re.compile(r"\(([A-Ja-j])\)[.:]?|([A-J])[.:)]?|([A-J])[.:)]\s+.*", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{2,}(?:[\s'-]+[A-Za-z]+)*")
_CONTENT = re.compile(r"\w|\\[A-Za-z]+|∅")


def equivalent(first: str, second: str) -> bool:
    """Whether two answers are the same; symmetric and transitive, since it compares keys."""
    key = canonical(first)
    return key is not None and key == canonical(second)


def canonical(answer: str) -> str | None:
    """The key under which equal answers vote together; None where nothing is in `answer`."""
    if len(answer) > ANSWER_MAX:
        return " ".join(answer.split()) or None
    text = _tidy(answer)
    if not _CONTENT.search(text):
        return None
    return _fast_key(text) or _text_key(text)


def is_number(key: str) -> bool:
    """Whether a canonical key is an exact number: such keys differ where the values do."""
    return _NUMBER_KEY.fullmatch(key) is not None


def is_words(text: str) -> bool:
    """Whether a tidy text is plain words, which no formula is."""
    return _WORDS.fullmatch(text) is not None


def _tidy(answer: str) -> str:
    """The tidy text without the variable that it is assigned to (`x = 5`)."""
    text = tidy(answer)
    return _ASSIGNMENT.sub("", text, count=1) if text.count("=") == 1 else text


def tidy(answer: str) -> str:
    """The answer without what never carries meaning: spacing, sizing, currency and degree signs, units,
    dots."""
    text = answer.strip().translate(_VULGAR_FRACTIONS).translate(_CHARACTERS)
    text = _unwrapped(unicodedata.normalize("NFKC", text).translate(_CHARACTERS))
    text = _SPACING.sub(" ", _DROPPED.sub("", text))
    for pattern, replacement in _SYNONYMS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split()).rstrip(".").strip()


def _unwrapped(text: str) -> str:
    r"""The text with `\text{...}` opened; dropped where it is a unit, that is, where it ends a number."""
    while match := _TEXT_COMMAND.search(text):
        end = closing_braces(text).get(match.end())
        if end is None:
            return text
        before, content, after = text[: match.start()], text[match.end() : end], text[end + 1 :]
        is_unit = before.strip()[-1:].isdigit() or before.strip().endswith(("}", "%"))
        if is_unit and re.fullmatch(r"(?:\^\{?\d\}?)?[\s.$]*", after) and not _SCALE_WORDS.search(content):
            return before
        text = f"{before}{content}{after}"
    return text


def _fast_key(text: str) -> str | None:
    for read in _READERS:
        if (key := read(text)) is not None:
            return key
    return None


def _decimal(text: str) -> str | None:
    match = _DECIMAL.fullmatch(text) if len(text) <= DIGITS_MAX else None
    if match is None:
        return None
    sign, whole, decimals, exponent, power, percent = match.groups()
    digits = re.sub(r"[ ,]", "", whole)
    scale = int(exponent or power or 0)
    if not (digits or decimals) or abs(scale) > DIGITS_MAX:
        return None
    value = Fraction(int(digits + (decimals or "") or "0")) * Fraction(10) ** (scale - len(decimals or ""))
    return _written(-value if sign == "-" else value, hundredths=bool(percent))


def _repeating(text: str) -> str | None:
    """A decimal whose overlined digits repeat."""
    match = _REPEATING.fullmatch(text) if len(text) <= DIGITS_MAX else None
    if match is None:
        return None
    sign, whole, fixed, repeated = match.groups()
    nines = (10 ** len(repeated) - 1) * 10 ** len(fixed)
    value = int(whole or "0") + Fraction(int(fixed + repeated) - int(fixed or "0"), nines)
    return _written(-value if sign == "-" else value)


def _ratio(text: str) -> str | None:
    if len(text) > DIGITS_MAX:
        return None
    if match := _RATIO.fullmatch(text):
        sign, mixed, above, below = match.groups()
    elif match := _LATEX_RATIO.fullmatch(text):
        sign, mixed = match[1], match[2]
        above, below = match[3] or match[4], match[5] or match[6]
    else:
        return None
    numerator, denominator = (int(re.sub(r"[ ,]", "", part)) for part in (above, below))
    if denominator == 0:
        return None
    value = Fraction(numerator, denominator) + int(mixed or 0)
    return _written(-value if sign == "-" else value)


def _written(value: Fraction, *, hundredths: bool = False) -> str:
    return str(value / 100 if hundredths else value)


def _letter(text: str) -> str | None:
    match = _CHOICE.fullmatch(text)
    return next(group for group in match.groups() if group).upper() if match else None


def _bracketed(text: str) -> str | None:
    r"""Tuples and intervals in their order, sets `\{...\}` in any; one element in round brackets is
    itself."""
    opening, closing, body = text[:1], text[-1:], text[1:-1]
    if text.startswith(r"\{") and text.endswith(r"\}"):
        opening, closing, body = "{", "}", text[2:-2]
    if opening not in ("(", "[", "{") or closing not in (")", "]", "}"):
        return None
    parts = split(body)
    if parts is None or sum(map(text.count, "([{")) > BRACKETS_MAX:
        return None
    if len(parts) == 1 and opening == "(" and closing == ")":
        return canonical(body)
    keys = [canonical(part) or "" for part in parts]
    if not all(keys):
        return None
    return opening + ",".join(sorted(set(keys)) if (opening, closing) == ("{", "}") else keys) + closing


def _list(text: str) -> str | None:
    """A bare list such as `1, -2`, `1 and -2` or `x=1 or x=-2`: several solutions, in any order. Values of
    several variables keep their names."""
    parts = split(re.sub(r"\b(?:and|or)\b", ",", text))
    if parts is None or len(parts) < 2:
        return None
    parts = [part.strip() for part in parts if part.strip()]
    names = [match[0] if (match := _ASSIGNMENT.match(part)) else "" for part in parts]
    keys = [_fast_key(_tidy(part)) for part in parts]
    if len(keys) < 2 or not all(keys):
        return None
    several = len({name.rstrip("= ") for name in names} - {""}) > 1
    named = [f"{name.strip() if several else ''}{key}" for name, key in zip(names, keys, strict=True)]
    return ", ".join(sorted(named))


def split(text: str) -> list[str] | None:
    """The parts between the commas that no bracket encloses; None where the brackets do not match."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return None
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if depth == 0 else None


def _text_key(text: str) -> str:
    """Text without spaces, every fraction in one form; plain words without their case."""
    if _WORDS.fullmatch(text):
        return text.casefold()
    braced = _SHORT_FRACTION.sub(lambda match: r"\frac" + _braces(match[1]) + _braces(match[2]), text)
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", braced)


def _braces(argument: str) -> str:
    return argument if argument.startswith("{") else f"{{{argument}}}"


_READERS: tuple[Callable[[str], str | None], ...] = (_decimal, _repeating, _ratio, _letter, _bracketed, _list)
