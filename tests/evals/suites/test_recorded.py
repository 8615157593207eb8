"""Recorded outputs of other models grade as their authors and the literature say."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from branchwise.evals.suites.base import Gold, Sample
from branchwise.evals.suites.grading import grade
from branchwise.evals.suites.registry import open_suite
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.classes import equivalence_classes
from branchwise.verifiers.extraction import extract_answer
from branchwise.verifiers.vote import Ballot, Select, select


def qwen_rows(data: Path) -> list[dict[str, Any]]:
    path = data / "qwen25math_bon8_math100" / "math_cot_100.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_qwen_on_math_grades_as_recorded_but_for_one_fault_of_the_record(real_data: Path):
    """The recorded grader took the gold 10{,}000 and the answer 10000 for different."""
    differing = []
    for row in qwen_rows(real_data):
        gold = Gold(AnswerType.EXPRESSION, row["gt"])
        sample = Sample(id=str(row["idx"]), problem=row["question"], gold=gold)
        for place, (text, recorded) in enumerate(zip(row["code"], row["score"], strict=True)):
            if grade(sample, extract_answer(text)).correct is not recorded:
                differing.append((row["idx"], place, row["gt"], extract_answer(text)))
    assert differing == [(72, 7, "10{,}000", "10000")]


def test_votes_over_qwens_eight_give_the_published_table(real_data: Path):
    """Table D: pass@1 91.0, majority 93, best of 8 by reward 94, weighted 94, pass@8 96 (of 100)."""
    tallies = dict.fromkeys(
        ("pass@1", Select.MAJORITY, Select.MAX_SCORE, Select.WEIGHTED_VOTE, "pass@8"), 0.0
    )
    for row in qwen_rows(real_data):
        right = row["score"]
        classes = equivalence_classes([extract_answer(text) for text in row["code"]])
        ballots = [
            Ballot(order=(place,), key=key, score=1 / (1 + math.exp(-reward)))
            for place, (key, (reward,)) in enumerate(zip(classes, row["pred_score"], strict=True))
        ]
        tallies["pass@1"] += sum(right) / len(right)
        tallies["pass@8"] += any(right)
        for rule in (Select.MAJORITY, Select.MAX_SCORE, Select.WEIGHTED_VOTE):
            winner = select(ballots, rule)
            tallies[rule] += winner is not None and right[winner]
    assert list(tallies.values()) == [91.0, 93, 94, 94, 96]


@pytest.mark.parametrize(
    ("file", "outputs", "right", "solved"),
    [("naive_cot_100", 10_000, 403, 49), ("tot_b5_value3", 500, 119, 69)],
)
def test_gpt4_on_game_of_24_grades_as_recorded(
    real_data: Path, file: str, outputs: int, right: int, solved: int
):
    suite = open_suite("game24", real_data)
    samples = {sample.id: sample for sample in suite.samples(None, 0)}
    problems = json.loads((real_data / "game24_gpt4_logs" / f"{file}.json").read_text())

    def graded(place: int, text: str) -> bool:
        return suite.grade(samples[f"game24-{place}"], extract_answer(text), text).correct is True

    grades = [[graded(problem["idx"], text) for text in problem["ys"]] for problem in problems]
    assert grades == [[info["r"] == 1 for info in problem["infos"]] for problem in problems]
    assert sum(map(len, grades)) == outputs
    assert sum(map(sum, grades)) == right
    assert sum(map(any, grades)) == solved
