"""The budget is hard: never passed, used up where work was left, and the ledger is the sum of the node
costs."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searching import Samples, scripted, solve, uneven


def check_books(solution: Solution) -> None:
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert solution.graph.flops_spent == solution.usage.flops


def forced_tokens(solution: Solution) -> int:
    return sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")


@settings(max_examples=60)
@given(
    tokens=st.integers(1, 400),
    n=st.integers(1, 40),
    seed=st.integers(0, 1000),
    reproducible=st.booleans(),
    reserve=st.none() | st.integers(0, 30),
)
def test_tokens_never_passed_and_used_up_when_work_was_left(tokens, n, seed, reproducible, reserve):
    if reserve is not None and reserve >= tokens:
        reserve = 0
    engine = scripted(pace=uneven)
    budget = Budget(tokens=tokens, answer_reserve=reserve)
    solution = solve(engine, Samples(n=n), budget, seed=seed, reproducible=reproducible)
    check_books(solution)
    assert solution.usage.tokens <= tokens
    assert solution.usage.tokens == engine.tokens_sampled + forced_tokens(solution)
    unfinished = sum(1 for c in solution.candidates if c.complete) < n
    if unfinished:
        assert solution.usage.tokens == tokens
        assert solution.reason is Reason.BUDGET
    else:
        assert solution.reason is Reason.EXHAUSTED
    assert engine.live_sequences == 0


@settings(max_examples=25)
@given(flops=st.integers(1, 200_000), seed=st.integers(0, 100), reproducible=st.booleans())
def test_flops_never_passed(flops, seed, reproducible):
    solution = solve(
        scripted(pace=uneven), Samples(n=6), Budget(flops=flops), seed=seed, reproducible=reproducible
    )
    check_books(solution)
    assert solution.usage.flops <= flops


@settings(max_examples=25)
@given(kv_tokens=st.integers(1, 120), seed=st.integers(0, 100), reproducible=st.booleans())
def test_kv_cap_never_passed_and_everyone_finishes_where_one_fits(kv_tokens, seed, reproducible):
    engine = scripted(pace=uneven)
    solution = solve(engine, Samples(n=6), Budget(kv_tokens=kv_tokens), seed=seed, reproducible=reproducible)
    check_books(solution)
    assert solution.usage.engine["kv_peak_tokens"] <= kv_tokens
    if kv_tokens >= 70:
        assert sum(c.complete for c in solution.candidates) == 6
    if kv_tokens <= 6:
        assert solution.reason is Reason.BUDGET
    assert engine.live_sequences == 0


def test_an_answer_comes_out_of_the_reserve():
    engine = scripted(lambda prompt, seed: "abc;" * 100)
    budget = Budget(tokens=40, answer_reserve=10)
    solution = solve(engine, Samples(n=1), budget)
    forced = [node for node in solution.graph.nodes() if node.kind == "forced"]
    assert [node.text for node in forced] == ["|"]
    assert forced[0].start - 6 == 28, "the unfinished step is dropped"
    assert solution.usage.tokens == 40


def test_scarce_budget_finishes_candidates_instead_of_starting_all():
    text = "abcdefgh;" * 4 + "|7$"
    solution = solve(scripted(lambda prompt, seed: text), Samples(n=64), Budget(tokens=333))
    assert sum(c.complete for c in solution.candidates) >= 6
    assert solution.usage.tokens == 333


def test_fork_none_takes_what_the_budget_allows():
    solution = solve(scripted(), Samples(n=None), Budget(tokens=500))
    assert solution.reason is Reason.BUDGET
    assert solution.usage.tokens == 500


@pytest.mark.parametrize(
    "fields", [{"tokens": 0}, {"flops": -1}, {"seconds": 0.0}, {"tokens": 4, "answer_reserve": 4}]
)
def test_bad_budget_is_one_clear_line(fields):
    with pytest.raises(UsageError) as caught:
        Budget(**fields)
    assert "\n" not in str(caught.value)
