"""Grading an answer against a typed gold."""

import msgspec

from ...engine.errors import CapabilityError
from ...verifiers.answer_type import AnswerType
from ...verifiers.code import CodeTests, run_tests
from ...verifiers.compare import choice_letter, compare
from ...verifiers.extraction import extract_code
from ...verifiers.sandbox import Sandbox
from .base import Grade, Sample


def grade(sample: Sample, answer: str | None, *, sandbox: Sandbox | None = None) -> Grade:
    """Grade an answer by the type of the sample's gold. None is an abstention, and wrong.

    `sandbox` is for programs; without one the system's is taken, and where there is none the grade is
    "cannot tell".
    """
    if answer is None:
        return Grade(False, "no answer")
    match sample.gold.type:
        case AnswerType.CODE:
            return _grade_code(sample, answer, sandbox)
        case AnswerType.CHOICE:
            return _grade_choice(sample, answer)
    verdict = compare(sample.gold.value, answer, sample.gold.type)
    if verdict.equal is None:
        return Grade(None, verdict.reason)
    return Grade(verdict.equal, "" if verdict.equal else f"not {sample.gold.value}")


def _grade_choice(sample: Sample, answer: str) -> Grade:
    options = msgspec.json.decode(sample.meta.get("options", "[]"), type=list[str])
    letter = _chosen(answer, options)
    if letter is None:
        return Grade(False, f"{answer[:40]!r} names no option")
    right = letter == sample.gold.value
    return Grade(right, "" if right else f"{letter}, not {sample.gold.value}")


def _chosen(answer: str, options: list[str]) -> str | None:
    """The letter of the option that an answer names, by letter or by its whole text."""
    named = [
        chr(ord("A") + place)
        for place, option in enumerate(options)
        if compare(answer, option, AnswerType.STRING).equal
    ]
    if len(named) == 1:
        return named[0]
    letter = choice_letter(answer)
    return letter if letter is not None and (not options or ord(letter) - ord("A") < len(options)) else None


def _grade_code(sample: Sample, answer: str, sandbox: Sandbox | None) -> Grade:
    entry, prompt = sample.meta.get("entry_point", ""), sample.meta.get("prompt", "")
    program = extract_code(answer, entry)
    if program is None:
        return Grade(False, "no complete program")
    tests = msgspec.json.decode(sample.gold.value, type=CodeTests)
    known = sample.meta.get("reference")
    whole, reference = (f"{prompt}\n{text}\n" if prompt else text for text in (program, known or ""))
    try:
        result = run_tests(whole, tests, sandbox=sandbox, reference=reference if known else None)
    except CapabilityError as error:
        return Grade(None, str(error))
    return Grade(result.passed, result.detail)
