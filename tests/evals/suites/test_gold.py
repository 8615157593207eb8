"""Grading traps in suites, and the gold verifier, which is an oracle."""

import pytest
from branchwise.evals.suites.base import Gold, Sample
from branchwise.evals.suites.expressions import grade_expression
from branchwise.evals.suites.gold import GoldVerifier
from branchwise.evals.suites.grading import grade
from branchwise.evals.suites.registry import open_suite
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.base import Candidate
from branchwise.verifiers.extraction import extract_answer
from branchwise.verifiers.problem import Problem


@pytest.mark.pins("reasoning-gym#478")
@pytest.mark.pins("reasoning-gym#265")
@pytest.mark.parametrize(
    ("numbers", "target", "answer", "right"),
    [
        ("1,1,1,81", 81, "81*1", False),
        ("1,1,1,81", 81, "81*1*1*1", True),
        ("2,3", 1, "3/2", False),
        ("2,3", 1, "3-2", True),
        ("3,3,3,9", 81, "9*9", False),
        ("1,2", 3, "__import__('os')", False),
        ("1,2", 3, "1+2+0", False),
        ("1,2", 3, "12", False),
        ("2,3,4,6", 24, "6×4×3÷2−12", False),
        ("2,3,4,6", 36, "6×4×3÷2", True),
        ("2,3,4,6", 13, "6×3−4−2+1", False),
        ("2,3,4,6", 12, "6×3−4−2", True),
        ("1,2", 3, "1" + "+(" * 500 + "2" + ")" * 500, False),
        ("1,2", 3, "", False),
        ("1,2", 3, "1+2 = 3", False),
        (r"3,4,6", 22, r"\left(6 \times 3\right) + 4", True),
        ("2,3,6", 4, r"\frac{6}{3} \cdot 2", True),
        ("1,2", 2, "2**1", False),
        ("1,2", 3, "True+2", False),
    ],
)
def test_expressions_use_each_number_as_often_as_given(numbers: str, target: int, answer: str, right: bool):
    assert grade_expression(numbers, target, answer).correct is right


@pytest.mark.pins("PostTrainBench#44")
@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        ("11", "ANSWER: 711", False),
        ("49", "so 149", False),
        ("1234567", "ANSWER: 1234571", False),
        ("70.0", "The answer is 70", True),
        ("025", r"\boxed{25}", True),
    ],
)
def test_numbers_in_text_grade_whole(gold: str, text: str, right: bool):
    sample = Sample(id="x", problem="", gold=Gold(AnswerType.INTEGER, gold))
    assert grade(sample, extract_answer(text)).correct is right


@pytest.mark.anyio
@pytest.mark.parametrize(("wrong", "value"), [(False, 1.0), (True, 0.0), (None, None)])
async def test_the_gold_verifier_is_a_marked_oracle(
    wrong: bool | None, value: float | None, anyio_backend: str
):
    suite = open_suite("arithmetic")
    [sample] = suite.samples(1, 0)
    answer = None if wrong is None else ("1" if wrong else "") + sample.gold.value
    verifier = GoldVerifier(suite, sample)
    assert verifier.oracle
    assert verifier.sound
    candidate = Candidate(
        problem=Problem(text=sample.problem),
        tokens=(),
        steps=(),
        thinking="",
        conclusion=answer or "",
        answer=answer,
        complete=True,
        lease=None,  # pyright: ignore[reportArgumentType]
    )
    score = await verifier.score(candidate)
    assert score.value == value
    assert score.verified == (None if value is None else bool(value))
