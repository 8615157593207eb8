"""The embedded suites."""

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.reference.problems import ArithmeticTask, CountdownTask
from branchwise.evals.reference.tasks import arithmetic, countdown
from branchwise.evals.suites.base import problem_of
from branchwise.evals.suites.registry import open_suite
from branchwise.verifiers.problem import Problem

NAMES = ("countdown", "countdown4", "arithmetic")


@pytest.mark.parametrize("name", NAMES)
def test_samples_depend_on_the_seed_alone_and_a_larger_limit_only_adds(name: str):
    suite = open_suite(name)
    assert suite.samples(40, 1) == open_suite(name).samples(60, 1)[:40]
    assert suite.samples(40, 1) != suite.samples(40, 2)
    assert len({sample.id for sample in suite.samples(None, 0)}) == 600


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_is_held_out_of_training_and_reads_back(name: str):
    for sample in open_suite(name).samples(50, 3):
        task = CountdownTask.recognise(sample.problem) or ArithmeticTask.recognise(sample.problem)
        assert task is not None
        if isinstance(task, CountdownTask):
            assert countdown.is_held_out(task.instance)
            assert sample.level == str(len(task.instance.numbers))
        else:
            assert arithmetic.is_held_out(task.instance)
            assert sample.gold.value == str(arithmetic.true_value(task.instance))


def test_what_a_strategy_sees_holds_no_gold():
    for name in NAMES:
        sample = open_suite(name).samples(1, 0)[0]
        problem = problem_of(sample)
        assert problem == Problem(id=sample.id, text=sample.problem)
        assert not {"gold", "answer", "meta", "level"} & set(Problem.__struct_fields__)
        if name == "arithmetic":
            assert sample.gold.value not in msgspec.to_builtins(problem)["text"].split()


def test_countdown_takes_every_right_expression_and_no_other():
    suite = open_suite("countdown")
    sample = next(s for s in suite.samples(600, 0) if s.meta["numbers"])
    assert suite.oracle
    numbers, target = sample.meta["numbers"].split(","), sample.gold.value
    solutions = [f"({a}{p}{b}){q}{c}" for a, b, c in _orders(numbers) for p in "+-*/" for q in "+-*/"] + [
        f"{a}{p}({b}{q}{c})" for a, b, c in _orders(numbers) for p in "+-*/" for q in "+-*/"
    ]
    grades = {solution: suite.grade(sample, solution, "").correct for solution in solutions}
    assert any(grades.values())
    for wrong in (target, f"{target}*1", f"{target} = {target}", "__import__('os')", "", "3/2"):
        assert suite.grade(sample, wrong, "").correct is False
    assert suite.grade(sample, None, "").correct is False


def test_arithmetic_takes_the_value_only():
    suite = open_suite("arithmetic")
    sample = suite.samples(1, 0)[0]
    assert suite.grade(sample, sample.gold.value, "").correct is True
    assert suite.grade(sample, f"x = {sample.gold.value}.0", "").correct is True
    assert suite.grade(sample, sample.problem, "").correct is False
    assert suite.grade(sample, f"1{sample.gold.value}", "").correct is False
    assert suite.grade(sample, None, "").correct is False


def test_an_unknown_suite_is_one_line_with_the_nearest():
    with pytest.raises(UsageError, match=r"^suite 'countdwn': not known; did you mean countdown"):
        open_suite("countdwn")


def _orders(numbers: list[str]) -> list[tuple[str, str, str]]:
    a, b, c = numbers
    return [(a, b, c), (a, c, b), (b, a, c), (b, c, a), (c, a, b), (c, b, a)]
