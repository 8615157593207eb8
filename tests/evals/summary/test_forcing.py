"""The table of s1's figures: from a strategy's notes to a run's summary."""

from pathlib import Path

import msgspec
import pytest
from branchwise.evals.runs.plan import Task
from branchwise.evals.runs.record import Record
from branchwise.evals.runs.store import Store
from branchwise.evals.runs.thinking import Thinking, thinking_of
from branchwise.evals.summary.export import to_markdown
from branchwise.evals.summary.summarise import summarise
from branchwise.strategies.chain import Chain
from branchwise.strategies.greedy import Greedy
from support.records import made_record, write_run
from support.scripted import ScriptedEngine
from support.searching import scripted, solve

SWEEP = ("greedy", "best_of_n(n=2)", "best_of_n(n=4)")
"""Settings of one family; what they thought is written by hand."""


def thought(tokens: int, at_least: int | None = None, at_most: int | None = None) -> Thinking:
    return Thinking(
        branch="0",
        tokens=tokens,
        waits=1,
        cut=False,
        early_exit=False,
        at_least=at_least,
        at_most=at_most,
    )


def by_hand(task: Task, place: int) -> Record:
    """`n=2` thinks 100 tokens and is right on 5 of 20, `n=4` 300 tokens and right on 10; limits 100..200."""
    if task.cell.strategy == "greedy":
        return made_record(task)
    tokens, right = (100, 5) if "n=2" in task.cell.strategy else (300, 10)
    record = made_record(task, correct=place < right)
    return msgspec.structs.replace(record, thinking=(thought(tokens, at_least=100, at_most=200),))


def test_the_summary_holds_the_figures_of_each_family(tmp_path: Path) -> None:
    with Store.read(write_run(tmp_path, by_hand, strategies=SWEEP)) as store:
        summary = summarise(store)
    (row,) = summary.forcing
    assert (row.family, row.control, row.performance, row.cut) == ("best_of_n(n)", 0.5, 0.5, 0.0)
    assert row.scaling == pytest.approx(100 * 100 * 0.25 / 200)
    assert [(tokens, accuracy) for _, tokens, accuracy in row.settings] == [(100, 0.25), (300, 0.5)]
    text = to_markdown(summary)
    assert "## Control of thinking" in text
    assert "| 50.0% | +12.50 | 50.0% | 0.0% | 100: 25.0%; 300: 50.0% |" in text


def test_runs_without_chains_have_no_such_table(tmp_path: Path) -> None:
    with Store.read(write_run(tmp_path, lambda task, place: made_record(task))) as store:
        summary = summarise(store)
    assert summary.forcing == ()
    assert "Control of thinking" not in to_markdown(summary)


def test_what_a_chain_notes_is_what_the_record_holds() -> None:
    def thinker(text: str, seed: int) -> str:
        thinking, end, said = text.removeprefix("Qtask:").partition("|")
        return "5$"[len(said) :] if end else "ab;|"[len(thinking.rpartition("W")[2])]

    solution = solve(ScriptedEngine({"policy": thinker}), Chain(min_think=5, max_think=9))
    (found,) = thinking_of(solution.graph.to_node_link())
    assert found == Thinking(
        branch="0", tokens=7, waits=1, cut=False, early_exit=False, at_least=5, at_most=9
    )
    assert found.within is True


@pytest.mark.parametrize(
    ("limits", "within"),
    [({}, None), ({"at_least": 8}, False), ({"at_most": 7}, True), ({"at_most": 6}, False)],
)
def test_within_looks_at_the_limits_that_there_are(limits: dict[str, int], within: bool | None) -> None:
    assert thought(7, **limits).within is within


def test_other_strategies_leave_no_figures() -> None:
    assert thinking_of(solve(scripted(), Greedy()).graph.to_node_link()) == ()
