"""Votes: each rule on a small case, and what holds for every rule on any ballots."""

import math
import random

import pytest
from branchwise.verifiers.vote import (
    Ballot,
    Select,
    borda,
    confidence_weighted,
    electorate,
    majority,
    select,
    weighted,
)
from hypothesis import given
from hypothesis import strategies as st


def ballot(order: int, key: str | None, score: float | None = None, **fields: object) -> Ballot:
    return Ballot(order=(0, order), key=key, score=score, **fields)  # pyright: ignore[reportArgumentType]


def winner(ballots: list[Ballot], rule: Select) -> int | None:
    index = select(ballots, rule)
    return None if index is None else ballots[index].order[1]


unit = st.none() | st.just(math.nan) | st.floats(0.0, 1.0)
ballots_strategy = st.lists(
    st.builds(
        ballot,
        st.integers(0, 1000),
        st.sampled_from([None, "", "1", "2", "3"]),
        unit,
        logprob=st.none() | st.floats(-50.0, 0.0),
        complete=st.booleans(),
        verified=st.sampled_from([None, None, True, False]),
    ),
    max_size=12,
    unique_by=lambda ballot: ballot.order,
)


def test_each_rule_on_one_case():
    ballots = [
        ballot(0, "a", 0.9, logprob=-3.0),
        ballot(1, "b", 0.5, logprob=-2.0),
        ballot(2, "b", 0.6, logprob=-1.0),
        ballot(3, "c", 0.1, logprob=-0.5),
        ballot(4, "c", 0.2, logprob=-4.0),
        ballot(5, "c", 0.1, logprob=-5.0),
    ]
    assert winner(ballots, Select.MAX_SCORE) == 0
    assert winner(ballots, Select.WEIGHTED_VOTE) == 2
    assert winner(ballots, Select.MAJORITY) == 4
    assert winner(ballots, Select.MEAN_LOGPROB) == 3
    assert winner(ballots, Select.BORDA) == 2
    assert winner(ballots, Select.CONFIDENCE_VOTE) == 4


def test_borda_points_follow_the_formula():
    points = borda([ballot(0, "a", 0.1), ballot(1, "b", 0.5), ballot(2, "a", 0.9)], power=0.5)
    assert points == pytest.approx({"a": 1**0.5 + 3**0.5, "b": 2**0.5})


def test_borda_equals_share_their_points_and_log_probabilities_stand_in_for_scores():
    assert borda([ballot(0, "a", 0.5), ballot(1, "b", 0.5)], power=1.0) == {"a": 1.5, "b": 1.5}
    assert borda([ballot(0, "a", logprob=-1.0), ballot(1, "b", logprob=-2.0)], power=1.0) == {
        "a": 2.0,
        "b": 1.0,
    }


def test_a_confidence_weighted_vote_sums_mean_probabilities():
    tally = confidence_weighted(
        [ballot(0, "a", logprob=math.log(0.5)), ballot(1, "b", logprob=math.log(0.25))]
    )
    assert tally == pytest.approx({"a": 0.5, "b": 0.25})
    voters = [ballot(0, "a", logprob=0.0), ballot(1, "b", logprob=-1.0), ballot(2, "b")]
    assert confidence_weighted(voters)["b"] == pytest.approx(math.exp(-1) + (1 + math.exp(-1)) / 2)
    assert confidence_weighted([ballot(0, "a"), ballot(1, "a")]) == {"a": 2.0}


@pytest.mark.pins("search-and-learn beam_search.py")
def test_a_branch_offered_twice_votes_once():
    beams = [
        ballot(0, "a", 0.5),
        ballot(0, "a", 0.5),
        ballot(0, "a", 0.5),
        ballot(1, "b", 0.4),
        ballot(2, "b", 0.4),
    ]
    assert majority(electorate(beams)) == {"a": 1.0, "b": 2.0}
    assert winner(beams, Select.MAJORITY) == 1
    assert winner(beams, Select.WEIGHTED_VOTE) == 1
    assert [voter.score for voter in electorate([ballot(0, "a", None), ballot(0, "a", 0.5)])] == [0.5]


@pytest.mark.pins("openreasoner/openr NaN score")
@pytest.mark.parametrize("rule", [Select.MAX_SCORE, Select.WEIGHTED_VOTE, Select.BORDA])
def test_a_score_that_is_not_a_number_never_wins(rule: Select):
    ballots = [ballot(0, "a", math.nan), ballot(1, "b", 0.9), ballot(2, "b", 0.8)]
    assert winner(ballots, rule) == 1


def test_of_a_tie_the_short_majority_takes_the_shortest():
    ballots = [
        ballot(0, "a", length=9),
        ballot(1, "b", length=7),
        ballot(2, "a", length=8),
        ballot(3, "b", length=9),
        ballot(4, "c", length=1),
    ]
    assert winner(ballots, Select.MAJORITY) == 0
    assert winner(ballots, Select.SHORT_MAJORITY) == 1
    assert winner([*ballots, ballot(5, "a", length=20)], Select.SHORT_MAJORITY) == 2
    assert winner([ballot(0, "a", length=3), ballot(1, "b", length=3)], Select.SHORT_MAJORITY) == 0


def test_negative_rewards_are_refused_where_they_would_be_summed():
    with pytest.raises(ValueError, match=r"score -1\.5: a vote is weighted by scores in \[0, 1\]"):
        weighted([ballot(0, "a", -1.5)])


def test_an_unknown_score_weighs_like_the_average_not_like_zero():
    assert weighted([ballot(0, "a", 0.2), ballot(1, "a", 0.4), ballot(2, "b")]) == pytest.approx(
        {"a": 0.6, "b": 0.3}
    )
    assert winner([ballot(0, "a", 0.01), ballot(1, "b")], Select.MAX_SCORE) == 0


@pytest.mark.pins("lighteval#1054")
def test_abstentions_never_win():
    ballots = [ballot(0, None, 1.0), ballot(1, None, 1.0), ballot(2, ""), ballot(3, "5", 0.0)]
    assert {winner(ballots, rule) for rule in Select} == {3}
    assert select([ballot(0, None), ballot(1, "")], Select.MAJORITY) is None
    assert select([], Select.MAJORITY) is None


@pytest.mark.pins("NVIDIA-NeMo/Skills#1257")
def test_the_majority_is_over_answers_whatever_the_verdicts():
    ballots = [
        ballot(i, key, score) for i, (key, score) in enumerate(zip("PPPQQ", (1, 0, 1, 0, 0), strict=True))
    ]
    assert majority(ballots) == {"P": 3.0, "Q": 2.0}
    assert winner(ballots, Select.MAJORITY) == 0


def test_ties_go_to_the_lowest_branch_id():
    ballots = [ballot(7, "b", 0.5), ballot(3, "a", 0.5), ballot(4, "b", 0.5), ballot(5, "a", 0.5)]
    assert {winner(ballots, rule) for rule in Select} == {3}
    deep = [Ballot(order=(0, 10), key="b"), Ballot(order=(0, 2, 1), key="a")]
    assert select(deep, Select.MAJORITY) == 1


def test_tiers_passed_then_complete_then_unrefuted():
    cut, refuted = ballot(0, "a", 1.0, complete=False), ballot(1, "b", 1.0, verified=False)
    plain, passed = ballot(2, "c", 0.1), ballot(3, "d", 0.1, verified=True)
    for rule in Select:
        assert winner([cut, refuted, plain, passed], rule) == 3
        assert winner([cut, refuted, plain], rule) == 2
        assert winner([cut, refuted], rule) == 1
        assert winner([cut], rule) == 0


@given(ballots_strategy, st.sampled_from(Select), st.randoms(use_true_random=False))
def test_the_order_of_the_ballots_does_not_matter(ballots: list[Ballot], rule: Select, rng: random.Random):
    shuffled = rng.sample(ballots, len(ballots))
    assert winner(ballots, rule) == winner(shuffled, rule)


@given(ballots_strategy, st.sampled_from(Select), st.randoms(use_true_random=False))
def test_duplicates_change_nothing(ballots: list[Ballot], rule: Select, rng: random.Random):
    doubled = rng.sample([*ballots, *ballots], 2 * len(ballots))
    assert winner(doubled, rule) == winner(ballots, rule)


@given(ballots_strategy, st.sampled_from(Select))
def test_the_winner_has_an_answer_and_is_of_the_best_tier(ballots: list[Ballot], rule: Select):
    index = select(ballots, rule)
    if index is None:
        assert not any(ballot.key for ballot in ballots)
        return
    chosen = ballots[index]
    answered = [ballot for ballot in ballots if ballot.key]
    assert chosen in answered
    assert chosen.verified is True or not any(ballot.verified is True for ballot in answered)
    assert chosen.verified is True or chosen.complete or not any(ballot.complete for ballot in answered)


@given(ballots_strategy, st.sampled_from(Select))
def test_abstentions_change_nothing(ballots: list[Ballot], rule: Select):
    assert winner(ballots, rule) == winner([ballot for ballot in ballots if ballot.key], rule)


@given(ballots_strategy)
def test_one_vote_per_voter(ballots: list[Ballot]):
    voters = electorate(ballots)
    assert sum(majority(voters).values()) == len(voters)
