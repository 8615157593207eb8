"""What votes say so far: golden values of the papers' rules, and the certain winner."""

import itertools

import pytest
from branchwise.strategies.adaptive_consistency import AdaptiveConsistency, Criterion
from branchwise.strategies.dynamic_voting import DynamicVoting
from branchwise.strategies.posterior import beta_confidence, dirichlet_confidence, normalised_entropy
from branchwise.strategies.votes import (
    PENDING,
    Pending,
    Vote,
    certain_winner,
    leaders,
    leading_share,
    tally,
    unanimous,
)
from branchwise.verifiers.vote import Ballot, Select, select
from hypothesis import given, settings
from hypothesis import strategies as st

answers = st.sampled_from([None, "a", "b", "c"])


def full_winner(votes: list[Vote]) -> str | None:
    """Self-consistency over all samples, by the vote that a search ends with."""
    ballots = [Ballot(order=(0, place), key=vote) for place, vote in enumerate(votes)]
    index = select(ballots, Select.MAJORITY)
    return None if index is None else votes[index]


@given(st.lists(answers, max_size=12))
def test_the_first_leader_is_the_winner_of_the_vote(votes: list[Vote]):
    assert (leaders(votes) or [None])[0] == full_winner(votes)
    assert sum(count for _, count in tally(votes)) == len(votes) - votes.count(None)


@given(st.lists(answers, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_the_certain_winner_is_that_of_the_whole_vote_in_any_order_of_arrival(votes: list[Vote], rng):
    seen: list[Vote | Pending] = [PENDING] * len(votes)
    certain = []
    for place in rng.sample(range(len(votes)), len(votes)):
        seen[place] = votes[place]
        certain.append(certain_winner(seen))
    assert {winner for winner in certain if winner is not None} <= {full_winner(votes)}
    assert certain[-1] == full_winner(votes)
    first = next((i for i, winner in enumerate(certain) if winner is not None), len(certain))
    assert all(winner is not None for winner in certain[first:]), "certain once, certain for good"


@settings(max_examples=200)
@given(st.lists(st.sampled_from([None, "a", "b", PENDING, PENDING]), min_size=1, max_size=7))
def test_a_winner_is_certain_exactly_where_no_continuation_changes_it(votes: list[Vote | Pending]):
    pending = votes.count(PENDING)
    if pending > 4:
        votes, pending = votes[:5], votes[:5].count(PENDING)
    outcomes = set()
    for coming in itertools.product([None, "a", "b", "new"], repeat=pending):
        rest = iter(coming)
        outcomes.add(full_winner([next(rest) if isinstance(v, Pending) else v for v in votes]))
    assert certain_winner(votes) == (outcomes.pop() if len(outcomes) == 1 else None)


def test_in_the_order_of_branch_ids_the_bound_is_met_with_equality_only_by_the_first_seen():
    pending: list[Vote | Pending] = [PENDING] * 2
    assert certain_winner([*"aaab", *pending]) == "a"  # 3 - 1 = N - n, and a was seen before b
    assert certain_winner([*"baaa", *pending]) is None
    assert certain_winner([*"baaaa", *pending]) == "a"
    assert certain_winner([PENDING, "a", "a", "b"]) is None, "the pending one would make b the first seen"


@pytest.mark.parametrize(
    ("most", "second", "confidence", "stop"),
    [
        (3, 0, 0.9375, False),
        (4, 0, 0.96875, True),
        (5, 1, 0.9375, False),
        (6, 1, 0.96484, True),
        (7, 2, 0.94531, False),
        (8, 2, 0.96729, True),
    ],
)
def test_the_beta_criterion_has_its_golden_values(most: int, second: int, confidence: float, stop: bool):
    assert beta_confidence(most, second) == pytest.approx(confidence, abs=5e-6)
    votes: list[Vote] = [*"a" * most, *"b" * second, None]
    assert AdaptiveConsistency().sure(votes) is stop
    assert AdaptiveConsistency(criterion=Criterion.DIRICHLET).sure(votes) is stop


@given(st.integers(0, 20), st.integers(0, 20))
def test_beta_is_symmetric_and_dirichlet_of_two_is_beta(first: int, second: int):
    assert beta_confidence(first, second) + beta_confidence(second, first) == pytest.approx(1.0)
    assert dirichlet_confidence([first, second]) == pytest.approx(beta_confidence(first, second))


@given(st.lists(st.integers(0, 8), min_size=2, max_size=5))
def test_the_chances_of_all_classes_to_lead_sum_to_one(counts: list[int]):
    chances = [dirichlet_confidence([c, *counts[:i], *counts[i + 1 :]]) for i, c in enumerate(counts)]
    assert sum(chances) == pytest.approx(1.0)


def test_dirichlet_asks_for_more_than_beta_where_a_third_answer_is_close():
    votes: list[Vote] = [*"aaaaaabcdef"]
    assert AdaptiveConsistency().sure(votes)
    assert not AdaptiveConsistency(criterion=Criterion.DIRICHLET).sure(votes)


@pytest.mark.parametrize(
    ("counts", "entropy"), [([1, 1], 1.0), ([4, 4, 4], 1.0), ([3, 1], 0.811278), ([4], 0.721928), ([1], 1.0)]
)
def test_entropy_is_normalised_by_the_number_of_answers(counts: list[int], entropy: float):
    assert normalised_entropy(counts) == pytest.approx(entropy, abs=1e-6)


@pytest.mark.parametrize(
    ("criterion", "votes", "sure"),
    [
        (Criterion.ENTROPY, "a", False),
        (Criterion.ENTROPY, "aaa", False),
        (Criterion.ENTROPY, "aaaa", True),
        (Criterion.ENTROPY, "aab", False),
        (Criterion.ENTROPY, "aaaaab", True),
        (Criterion.MAJORITY, "a", False),
        (Criterion.MAJORITY, "aa", True),
        (Criterion.MAJORITY, "aaab", False),
        (Criterion.MAJORITY, "aaaab", True),
    ],
)
def test_the_other_published_criteria(criterion: Criterion, votes: str, sure: bool):
    assert AdaptiveConsistency(criterion=criterion).sure([*votes]) is sure


@pytest.mark.parametrize("criterion", Criterion)
def test_abstentions_alone_make_nobody_sure(criterion: Criterion):
    assert not AdaptiveConsistency(criterion=criterion, threshold=0.5).sure([None] * 10)
    assert not DynamicVoting(theta=0.1).sure([None] * 10)


def test_a_window_agrees_only_in_one_answer_of_all_its_samples():
    assert unanimous(["a"] * 5)
    assert not unanimous(["a"] * 4 + ["b"])
    assert not unanimous(["a"] * 4 + [None])
    assert not unanimous([None] * 5)
    assert not unanimous([])


def test_the_share_counts_abstentions_as_samples():
    assert leading_share([None, "a", "a", "b"]) == 0.5
    assert leading_share([None]) == leading_share([]) == 0.0
    assert DynamicVoting(theta=0.75, n_min=4).sure([None, "a", "a", "a"])
    assert not DynamicVoting(theta=0.75, n_min=5).sure([None, "a", "a", "a"])
