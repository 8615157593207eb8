"""The orchestrator on recorded outputs: served without replacement, at their cost, nothing invented."""

from collections import Counter
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.text.stop import Until
from branchwise.evals.replay.pieces import PieceTokenizer
from branchwise.evals.replay.recording import Completion, RecordedProblem, Recording, apportioned
from branchwise.evals.replay.solver import ReplaySolver
from branchwise.evals.replay.suite import RecordedSuite
from branchwise.evals.runs.plan import Cell, Task
from branchwise.evals.runs.record import Record, make_record
from branchwise.strategies.base import Search, Strategy
from hypothesis import given
from hypothesis import strategies as st

ANSWERS = ("1", "1", "2", "3", "1", "2", "4", "1")


def recording(**changes: Any) -> Recording:
    """One problem of eight completions, 10 to 17 tokens long, half of them right."""
    completions = tuple(
        Completion(
            text=f"sample {i}: the answer is {answer}",
            answer=answer,
            correct=answer == "1",
            **{"tokens": 10 + i, **changes},
        )
        for i, answer in enumerate(ANSWERS)
    )
    return Recording(
        name="hand",
        problems=(RecordedProblem(id="p", problem="q", completions=completions),),
        temperature=0.7,
    )


def replay(of: Recording, strategy: str, budget: str = "", seed: int = 0) -> Record:
    """The record of one replayed search."""
    suite = RecordedSuite(of)
    (sample,) = suite.samples(None, 0)
    task = Task(sample, Cell(strategy=strategy, budget=budget), seed)
    solved = anyio.run(ReplaySolver(of, oracle=False).solve, task)
    return make_record(
        task,
        solved.solution,
        lambda answer, text: suite.grade(sample, answer, text),
        solved.solution.graph.to_node_link(),
        spent=solved.spent,
        beyond=solved.beyond,
    )


@pytest.mark.parametrize("seed", range(4))
def test_all_samples_are_each_served_once_at_their_cost(seed: int) -> None:
    record = replay(recording(), "best_of_n(n=8, select=majority)", seed=seed)
    assert Counter(c.answer for c in record.candidates) == Counter(ANSWERS)
    assert record.usage.tokens == sum(range(10, 18))
    assert (record.answer, record.correct, record.censored) == ("1", True, False)
    assert record.usage.flops is None  # not 0: a recording does not tell


def test_the_order_is_seeded_and_every_sample_comes_first_now_and_then() -> None:
    first = [replay(recording(), "best_of_n(n=1)", seed=seed).text for seed in range(40)]
    assert first == [replay(recording(), "best_of_n(n=1)", seed=seed).text for seed in range(40)]
    assert len(set(first)) == 8


def test_a_request_beyond_the_record_ends_the_sample_as_censored() -> None:
    record = replay(recording(), "best_of_n(n=9)")
    assert record.censored
    assert record.correct is False
    assert record.grade_reason == "the recording ended before the search"
    assert (record.usage.tokens or 0) <= sum(range(10, 18))


@given(st.integers(1, 120), st.integers(0, 5))
def test_a_budget_is_kept_to_the_token(tokens: int, seed: int) -> None:
    record = replay(recording(), "best_of_n(n=8, select=majority)", f"tokens={tokens}", seed)
    assert record.usage.tokens is not None
    assert record.usage.tokens <= tokens
    if tokens < 108:
        assert not all(candidate.complete for candidate in record.candidates) or len(record.candidates) < 8


def test_a_reward_chooses_where_it_was_recorded() -> None:
    scored = recording()
    problem = scored.problems[0]
    completions = tuple(
        Completion(text=c.text, answer=c.answer, correct=c.correct, tokens=5, score=float(c.answer == "4"))
        for c in problem.completions
    )
    scored = Recording(name="hand", problems=(RecordedProblem(id="p", problem="q", completions=completions),))
    assert replay(scored, "best_of_n(n=8, select=max_score)").answer == "4"
    assert replay(scored, "best_of_n(n=8, select=majority)").answer == "1"


def test_unknown_tokens_stay_unknown_and_no_budget_can_be_kept_by_them() -> None:
    record = replay(recording(tokens=None), "best_of_n(n=4)")
    assert record.usage.tokens is None
    assert {c.tokens for c in record.candidates} == {None}
    with pytest.raises(UsageError, match="does not tell the tokens"):
        replay(recording(tokens=None), "best_of_n(n=4)", "tokens=100")


@pytest.mark.parametrize("budget", ["flops=1G", "seconds=5", "kv_tokens=100"])
def test_a_budget_of_what_was_not_recorded_is_refused(budget: str) -> None:
    with pytest.raises(UsageError, match="does not tell"):
        replay(recording(), "best_of_n(n=4)", budget)


@pytest.mark.parametrize("strategy", ["greedy", "best_of_n(n=2, temperature=1.5)"])
def test_samples_do_not_stand_for_another_temperature(strategy: str) -> None:
    with pytest.raises(UsageError, match=r"recording holds samples at temperature 0\.7"):
        replay(recording(), strategy)


def test_a_cut_completion_is_not_complete_and_never_goes_on() -> None:
    record = replay(recording(complete=False), "best_of_n(n=2)")
    assert record.censored
    assert not any(candidate.complete for candidate in record.candidates)


class ForksLate(Strategy, tag="forks_late", kw_only=True, frozen=True):
    """A tree: forks in the middle of a completion, where nothing else was recorded."""

    async def run(self, search: Search) -> None:
        (branch,) = search.root.fork(1)
        await branch.extend(Until.END, max_tokens=4)
        for child in branch.fork(2):
            await child.extend(Until.END)
            search.offer(child)


def test_a_tree_asks_for_what_was_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cell, "parsed", property(lambda self: ForksLate()))
    record = replay(recording(), "best_of_n")
    assert record.censored
    assert record.correct is False


@given(st.text(max_size=40), st.integers(1, 60))
def test_pieces_make_up_the_text_whatever_their_number(text: str, count: int) -> None:
    tokenizer = PieceTokenizer()
    ids = tokenizer.cut(text, count)
    assert len(ids) == count
    assert tokenizer.decode(ids) == text


@given(st.integers(0, 10_000), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_a_recorded_total_is_split_without_loss(total: int, lengths: list[int]) -> None:
    parts = apportioned(total, lengths)
    assert sum(parts) == total
    assert min(parts) >= 0
    if sum(lengths):
        assert all(abs(p - total * n / sum(lengths)) < 1 for p, n in zip(parts, lengths, strict=True))
