r"""The shape of an answer: one formula, or a tuple, a set, an interval, a union of intervals of them.

Shapes are read from text alone. What stands in them is compared formula by formula, so that `(1, \sqrt 4)`
and `\{2, 1\}` differ by their shape, however alike their members are.
"""

import re

import msgspec

from .answer import BRACKETS_MAX, split, tidy
from .answer_type import AnswerType

_INFINITY = re.compile(r"([-+]?)\s*(?:\\infty|infinity|inf|oo)", re.IGNORECASE)
_MEMBERSHIP = re.compile(r"[A-Za-z](?:_\w)?\s*\\in(?![A-Za-z])\s*")
_UNION = re.compile(r"\\cup(?![A-Za-z])|∪")
_RELATION = re.compile(r"(<=|>=|<|>|\\leq?(?![A-Za-z])|\\geq?(?![A-Za-z])|\\lt(?![A-Za-z])|\\gt(?![A-Za-z]))")
_VARIABLE = re.compile(r"[A-Za-z](?:_\w)?|\\(?:theta|alpha|beta|lambda)")
_ASSIGNED = re.compile(r"\s*([A-Za-z]\w?)\s*=")
_EITHER_SIGN = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|±|∓")
_BREAK = re.compile(r"\b(?:and|or)\b")
_REALS = re.compile(r"\\mathbb\s*\{?R\}?|all real numbers", re.IGNORECASE)


class Formula(msgspec.Struct, frozen=True):
    """One formula, word or number."""

    text: str


class Several(msgspec.Struct, frozen=True):
    """Members in brackets. `brackets` is "()", "[]" or "{}", empty for a bare list; `ordered` where their
    order counts."""

    members: tuple["Formula | Several | Interval | Union", ...]
    brackets: str
    ordered: bool


class Interval(msgspec.Struct, frozen=True):
    """From `low` to `high`, each a formula (infinite ones too); whether each end belongs to it."""

    low: str
    high: str
    low_closed: bool
    high_closed: bool


class Union(msgspec.Struct, frozen=True):
    """Intervals joined, in any order."""

    parts: tuple[Interval, ...]


Shape = Formula | Several | Interval | Union


def read_shape(text: str, kind: AnswerType = AnswerType.EXPRESSION) -> Shape:
    """The shape of an answer that should be of `kind`. Round brackets around two members are a tuple unless
    an interval is expected or an end is infinite."""
    tidied = tidy(text)
    if len(tidied) > 400 or sum(map(tidied.count, "([{")) > BRACKETS_MAX:
        return Formula(tidied)
    return _spans(tidied, kind) or _members(tidied, kind) or Formula(tidied)


def as_interval(shape: Shape) -> Shape:
    """Two members in round or square brackets read as the ends of an interval."""
    if isinstance(shape, Several) and shape.brackets in ("()", "[]") and len(shape.members) == 2:
        low, high = shape.members
        if isinstance(low, Formula) and isinstance(high, Formula):
            closed = shape.brackets == "[]"
            return Interval(low.text, high.text, closed, closed)
    return shape


def _spans(text: str, kind: AnswerType) -> Shape | None:
    """Intervals, unions of them, and inequalities in one variable."""
    if _REALS.fullmatch(text):
        return Interval("-\\infty", "\\infty", False, False)
    inside = _MEMBERSHIP.sub("", text, count=1) if _MEMBERSHIP.match(text) else text
    pieces = _UNION.split(inside)
    surely = len(pieces) > 1 or inside is not text or kind is AnswerType.INTERVAL
    found = [_interval(piece.strip(), surely=surely) for piece in pieces]
    if None in found:
        found = [_inequality(piece.strip()) for piece in _BREAK.split(text) if piece.strip()]
    parts = tuple(part for part in found if part is not None)
    if not parts or len(parts) < len(found):
        return None
    return parts[0] if len(parts) == 1 else Union(parts)


def _interval(text: str, *, surely: bool) -> Interval | None:
    """An interval; `surely` where the text around says that the brackets are one."""
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]"):
        return None
    ends = split(text[1:-1])
    if ends is None or len(ends) != 2:
        return None
    low, high = (end.strip() for end in ends)
    infinite = any(_INFINITY.fullmatch(end) for end in (low, high))
    half_open = (text[0], text[-1]) in (("(", "]"), ("[", ")"))
    if surely or infinite or half_open:
        return Interval(_end(low), _end(high), text[0] == "[", text[-1] == "]")
    return None


def _inequality(text: str) -> Interval | None:
    """`x >= 2`, `2 <= x < 5`, `5 > x`."""
    sides = _RELATION.split(text)
    terms, relations = [side.strip() for side in sides[::2]], sides[1::2]
    if len(terms) == 2 and all(terms):
        relation = _relation(relations[0])
        if _VARIABLE.fullmatch(terms[1]) and not _VARIABLE.fullmatch(terms[0]):
            terms, relation = terms[::-1], relation.translate(_TURNED)
        if not _VARIABLE.fullmatch(terms[0]):
            return None
        closed = "=" in relation
        if relation[0] == ">":
            return Interval(terms[1], "\\infty", closed, False)
        return Interval("-\\infty", terms[1], False, closed)
    if len(terms) == 3 and all(terms) and _VARIABLE.fullmatch(terms[1]):
        first, second = (_relation(relation) for relation in relations)
        if first[0] != second[0]:
            return None
        if first[0] == ">":
            return Interval(terms[2], terms[0], "=" in second, "=" in first)
        return Interval(terms[0], terms[2], "=" in first, "=" in second)
    return None


_TURNED = str.maketrans("<>", "><")


def _relation(sign: str) -> str:
    """`<`, `<=`, `>` or `>=`."""
    direction = "<" if sign[0] == "<" or sign.startswith("\\l") else ">"
    return direction + ("=" if "=" in sign or "e" in sign else "")


def _end(text: str) -> str:
    """An end of an interval; all spellings of infinity as one."""
    match = _INFINITY.fullmatch(text)
    return text if match is None else ("-\\infty" if match[1] == "-" else "\\infty")


def _members(text: str, kind: AnswerType) -> Several | None:
    """A tuple, a set or a bare list; `a \\pm b` is two members. Values of several variables are none of
    these."""
    opening, closing, body = text[:1], text[-1:], text[1:-1]
    if text.startswith(r"\{") and text.endswith(r"\}"):
        opening, closing, body = "{", "}", text[2:-2]
    inner = split(body) if (opening + closing) in ("()", "[]", "{}") else None
    if inner is not None and (len(inner) > 1 or opening == "{"):
        members = [member for part in inner for member in _either_sign(part)]
        return _several(members, opening + closing, ordered=opening != "{")
    bare = split(_BREAK.sub(",", text)) if "," in text or _BREAK.search(text) else [text]
    if bare is None:
        return None
    members = [member for part in bare for member in _either_sign(part)]
    if len(members) < 2 or len({match[1] for part in bare if (match := _ASSIGNED.match(part))}) > 1:
        return None
    return _several(members, "", ordered=kind is AnswerType.TUPLE)


def _several(members: list[str], brackets: str, *, ordered: bool) -> Several | None:
    texts = [member.strip() for member in members if member.strip()]
    return Several(tuple(map(read_shape, texts)), brackets, ordered) if texts else None


def _either_sign(text: str) -> list[str]:
    """`a \\pm b` as its two values."""
    if not _EITHER_SIGN.search(text):
        return [text]

    def signed(pm: str, mp: str) -> str:
        return _EITHER_SIGN.sub(lambda match: f" {pm if match[0] in ('±', chr(92) + 'pm') else mp} ", text)

    return [signed("+", "-"), signed("-", "+")]
