r"""Finding the final answer in free text.

The forms are tried from the most explicit to the least: the last complete `\boxed{}`, `<answer>`, `####`,
"answer is", a lone choice letter, the last number. A form that was opened and never closed means that the
text was cut inside its answer: that is an abstention, and no weaker form is tried. Nothing is ever
evaluated. Where the type of the answer is known, forms that cannot be of that type are passed over.
"""

import re

from .answer_type import AnswerType

_BOX = re.compile(r"\\f?box(?:ed)?\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_HASHES = re.compile(r"####[ \t]*(\S.*)")
_PHRASE = re.compile(
    r"\banswer(?:\s+is(?!\s+not\b)\s*:?|\s*[:=])(?:\s*\*\*)?\s*(?:(?:therefore|thus|simply|just)\s)?\s*(?=\S)",
    re.IGNORECASE,
)
_MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?](?:\s|\*|$)|\n|\*\*")

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_BRACKETED_LETTER = re.compile(r"\(([A-J])\)|\b([A-J])\)|\*\*([A-J])\.?\*\*")

_NUMBER = (
    r"(?:(?<![\w)\]])[-+−](?=[$€£]?[\d.]))?[$€£]?"
    r"(?<![\w.])(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?!\d)"
    r"(?:/\d+)?(?:[eE][-+]?\d+)?(?:\s?\\?%)?"
)
_ANY_NUMBER = re.compile(_NUMBER)
# A number that goes on as a formula, a ratio or a list is only a part of the answer.
_GOES_ON = r"\$?\s*[-+−*/^=<>×÷·\\({_]|[A-Za-z:]|\s*,\s*[-\d(]|\s+(?:or|and)\s+[-\d]"
_LEADING_NUMBER = re.compile(rf"((?>{_NUMBER}))(?!{_GOES_ON})")
_LEADING_LETTER = re.compile(r"\(?([A-J])\)?(?=[.,;:!?*]|\s*$|\s+(?:because|since|as)\b)")
_LONE_LETTER = re.compile(r"(?:(?:option|choice)\s+)?\(?([A-J])\)?[.]?", re.IGNORECASE)
_CHOICE = re.compile(r"\b(?:option|choice)\s+\(?([A-J])\b\)?")


def extract_answer(text: str, kind: AnswerType | None = None) -> str | None:
    """The final answer in `text`, None where there is none (an abstention). `kind` is its type where that is
    known."""
    if kind is AnswerType.CODE:
        return extract_code(text)
    for form in (_boxed, _tagged, _after_hashes, _after_phrase):
        found, cut = form(text)
        if found:
            return found
        if cut:
            return None
    if kind is AnswerType.CHOICE:
        return _letter(text) or _last_letter(text)
    if kind is AnswerType.STRING:
        return text.strip() or None if "\n" not in text.strip() else None
    if kind is None or kind is AnswerType.EXPRESSION:
        return _letter(text) or _last_number(text)
    return _last_number(text)


def extract_code(text: str, defines: str = "") -> str | None:
    """The program in `text`: its last fenced block that defines the function `defines`, else its last fenced
    block, else the whole of a text without fences. None where there is none, or the last fence was never
    closed."""
    blocks = _FENCED.findall(text)
    rest = _FENCED.sub("", text)
    if "```" in rest:
        return None
    if not blocks:
        return text.rstrip() if text.strip() else None
    definition = re.compile(rf"^\s*(?:async\s+)?def\s+{re.escape(defines)}\s*\(", re.MULTILINE)
    defining = [block for block in blocks if defines and definition.search(block)]
    return (defining or blocks)[-1]


Found = tuple[str | None, bool]
"""The answer, and whether the form was opened but not closed."""


def _boxed(text: str) -> Found:
    starts = [match.end() for match in _BOX.finditer(text)]
    ends = closing_braces(text) if starts else {}
    for start in reversed(starts):
        content = text[start : ends.get(start, start)].strip()
        if content:
            return content, False
    return None, any(start not in ends for start in starts)


def closing_braces(text: str) -> dict[int, int]:
    """For each position that follows an opening brace, the position of the brace that closes it, if one does.

    Escaped braces do not count. One pass, so that a model that repeats itself costs no more than its length.
    """
    closed: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.end())
        elif match[0] == "}" and opened:
            closed[opened.pop()] = match.start()
    return closed


def _tagged(text: str) -> Found:
    lowered = text.lower()
    end = lowered.rfind("</answer>")
    while end >= 0:
        start = lowered.rfind("<answer>", 0, end)
        content = text[start + len("<answer>") : end].strip() if start >= 0 else ""
        if content:
            return content, False
        end = lowered.rfind("</answer>", 0, max(start, 0))
    return None, "<answer>" in lowered and "</answer>" not in lowered


def _after_hashes(text: str) -> Found:
    lines = _HASHES.findall(text)
    return (lines[-1].strip(), False) if lines else (None, False)


def _after_phrase(text: str) -> Found:
    ends = [match.end() for match in _PHRASE.finditer(text)]
    return (_leading_answer(text[ends[-1] :]), False) if ends else (None, False)


def _leading_answer(phrase: str) -> str | None:
    """The answer at the head of what follows "answer is"."""
    for form in (_LEADING_NUMBER, _LEADING_LETTER):
        if match := form.match(phrase):
            return match[1].strip()
    if match := _MATH.match(phrase):
        return next(group for group in match.groups() if group).strip()
    sentence = _SENTENCE_END.split(phrase, maxsplit=1)[0].strip(" \t:*\"'`")
    return sentence or None


def _letter(text: str) -> str | None:
    if match := _LONE_LETTER.fullmatch(text.strip()):
        return match[1].upper()
    choices = _CHOICE.findall(text)
    return choices[-1] if choices else None


def _last_letter(text: str) -> str | None:
    """The last letter in brackets or in bold."""
    letters = _BRACKETED_LETTER.findall(text)
    return next(filter(None, letters[-1])) if letters else None


def _last_number(text: str) -> str | None:
    numbers = _ANY_NUMBER.findall(text)
    return numbers[-1].strip() if numbers else None
