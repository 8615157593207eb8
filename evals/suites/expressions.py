"""Answers that are expressions over given numbers: plain signs from LaTeX, and the exact check."""

import re

from ..reference.tasks import countdown, countdown_replay
from .base import Grade

_SIGNS = str.maketrans({"×": "*", "⋅": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})
_COMMANDS = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;! ]|\$"), ""),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def plain_expression(answer: str) -> str:
    """The expression with ASCII signs; LaTeX products, quotients and sizing are read."""
    text = answer.translate(_SIGNS)
    for pattern, replacement in _COMMANDS:
        text = pattern.sub(replacement, text)
    while (plain := _FRACTION.sub(r"((\1)/(\2))", text)) != text:
        text = plain
    return text.strip()


def grade_expression(numbers: str, target: int, answer: str | None) -> Grade:
    """Whether `answer` uses each of the comma-separated numbers once and makes the target."""
    if answer is None:
        return Grade(False, "no answer")
    instance = countdown.Instance(tuple(sorted(map(int, numbers.split(",")))), target)
    right = countdown_replay.check_answer(instance, plain_expression(answer))
    return Grade(right, "" if right else f"not an expression of {numbers} that makes {target}")
