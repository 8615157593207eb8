"""Progress and estimates from counted records."""

import io

import pytest
from branchwise.evals.runs.plan import Plan, Task, make_plan
from branchwise.evals.runs.progress import (
    Progress,
    estimate_line,
    plan_line,
    readable_count,
    readable_s,
    shown,
)
from branchwise.evals.runs.record import Record, Spent
from branchwise.evals.suites.registry import open_suite
from rich.console import Console
from support.evaluating import recipe


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def plan() -> Plan:
    what = recipe(strategies=("greedy", "best_of_n(n=4)"), limit=10, budgets=("tokens=100",))
    return make_plan(what, open_suite("countdown").samples(10, 0))


def record(task: Task, tokens: int | None, correct: bool = True) -> Record:
    return Record(
        sample=task.sample.id,
        strategy=task.cell.strategy,
        budget=task.cell.budget,
        seed=task.seed,
        level=None,
        answer="1",
        correct=correct,
        grade_reason="",
        reason="solved",
        censored=False,
        score=None,
        verified=None,
        text="",
        usage=Spent(tokens=tokens),
        candidates=(),
    )


def fed(problems: int, tokens: tuple[int | None, int | None], seconds: float) -> Progress:
    """Both strategies done on the first problems, at so many tokens each."""
    clock = Clock()
    progress = Progress(plan(), plan().tasks(), clock)
    for index, task in enumerate(list(plan().tasks())[: 2 * problems]):
        progress.receive(record(task, tokens[index % 2], correct=index % 4 != 0))
    clock.now_s = seconds
    return progress


def test_what_is_left_is_each_cells_mean_at_the_present_rate() -> None:
    progress = fed(2, (30, 90), seconds=4.0)
    assert progress.expected().tokens == 8 * 30 + 8 * 90
    assert progress.expected().seconds == pytest.approx(960 / (240 / 4))
    assert estimate_line(progress) == "estimate for the rest: 960 tokens, 16 s (measured on 4 samples)"


def test_without_tokens_time_is_left_by_samples() -> None:
    expected = fed(2, (None, None), seconds=4.0).expected()
    assert (expected.tokens, expected.seconds) == (None, 16.0)


def test_a_line_tells_rate_time_left_cost_and_accuracy() -> None:
    line = fed(2, (30, 90), seconds=4.0).line()
    assert line == "4/20 samples, 1.0/s, 240 tokens, 16 s left, accuracy 50.0% to 100.0%"


def test_earlier_records_count_as_done_and_not_into_the_rate() -> None:
    clock = Clock()
    tasks = list(plan().tasks())
    progress = Progress(plan(), tasks[10:], clock)
    for task in tasks[:10]:
        progress.recall(record(task, 50))
    clock.now_s = 5.0
    assert (progress.done, progress.rate) == (10, 0.0)
    progress.receive(record(tasks[10], 50))
    assert (progress.done, progress.rate) == (11, 0.2)
    assert progress.expected().tokens == 9 * 50


def test_the_plan_tells_the_most_that_it_may_cost() -> None:
    assert plan_line(plan(), 20) == (
        "10 problems x 2 strategies x 1 budgets x 1 seeds: 20 samples; at most 2k tokens by their budgets"
    )
    assert "20 samples, 5 to do" in plan_line(plan(), 5)


def test_a_pipe_gets_lines_and_a_terminal_a_table() -> None:
    for terminal in (False, True):
        out = io.StringIO()
        clock = Clock()
        progress = Progress(plan(), plan().tasks(), clock)
        console = Console(file=out, force_terminal=terminal, width=120)
        with shown(progress, console) as watch:
            for task in plan().tasks():
                clock.now_s += 3.0
                watch(record(task, 50))
        if terminal:
            assert "tokens each" in out.getvalue()
        else:
            assert len(out.getvalue().splitlines()) == 5  # one line in 10 s, of 60
            assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (1500, "1.5k"), (1_234_567, "1.23M"), (3e9, "3G")]
)
def test_counts_are_readable(count: float, text: str) -> None:
    assert readable_count(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(3, "3 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert readable_s(seconds) == text
