"""A tournament finds the best where the comparisons agree, and stays with the earlier one where they do not
tell."""

import anyio
import pytest
from branchwise.verifiers.knockout import knockout
from branchwise.verifiers.vote import Ballot, Select, select
from hypothesis import given
from hypothesis import strategies as st


def rounds(values: list[float], met: list[tuple[float, float]] | None = None) -> list[int]:
    async def prefer(first: float, second: float) -> float | None:
        if met is not None:
            met.append((first, second))
        return 0.5 if first == second else float(first > second)

    return anyio.run(knockout, values, prefer)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_the_best_alone_survives_and_the_earlier_of_equals(values):
    met = []
    found = rounds(values, met)
    winner = max(range(len(values)), key=found.__getitem__)
    assert values[winner] == max(values)
    assert winner == values.index(max(values)), "ties go to the earlier"
    assert found.count(max(found)) == 1 or len(values) == 1
    assert len(met) == len(values) - 1


@pytest.mark.parametrize("told", [None, 0.5])
def test_what_cannot_be_told_stays_with_the_earlier(told: float | None) -> None:
    async def prefer(first: int, second: int) -> float | None:
        return told

    assert anyio.run(knockout, [1, 2, 3, 4, 5], prefer) == [3, 0, 1, 0, 2]


def test_nobody_and_one_meet_nobody() -> None:
    assert rounds([]) == []
    assert rounds([1.0]) == [0]


def test_the_selection_takes_the_winner_else_the_weighted_vote() -> None:
    ballots = [Ballot(order=(0, i), key=key, score=0.5) for i, key in enumerate(["a", "b", "b"])]
    assert select(ballots, Select.KNOCKOUT) == 1
    ranked = [Ballot(order=(0, 0), key="a", rounds=1), *ballots[1:]]
    assert select(ranked, Select.KNOCKOUT) == 0
    proven = [*ranked, Ballot(order=(0, 3), key="c", verified=True)]
    assert select(proven, Select.KNOCKOUT) == 3, "a proof is above any tournament"
