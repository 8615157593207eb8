"""Classes of equal answers: what joins, what a chain must not join, and order."""

import random

import pytest
from branchwise.verifiers.answer import canonical
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.classes import CLASSES_MAX, equivalence_classes
from branchwise.verifiers.vote import Ballot, Select, select
from hypothesis import given
from hypothesis import strategies as st


def test_equal_values_are_one_class_and_abstentions_none():
    answers = ["1/2", r"\sqrt{8}", "0.5", None, r"2\sqrt{2}", "", r"\frac12", "3"]
    half, root, *_ = classes = equivalence_classes(answers)
    assert classes == [half, root, half, None, root, None, half, canonical("3")]
    assert half != root


@pytest.mark.pins("Math-Verify#25")
@pytest.mark.pins("sieval#18")
@pytest.mark.pins("open-r1#557")
def test_an_inequality_and_its_interval_are_one_class_in_either_order():
    pair = ["x ≥ √2", r"x ∈ [√2, ∞)"]
    for answers in (pair, pair[::-1]):
        first, second = equivalence_classes(answers, AnswerType.INTERVAL)
        assert first == second is not None


@pytest.mark.pins("lighteval#1054")
def test_votes_count_equivalent_spellings_and_never_abstentions():
    def winner(answers: list[str | None]) -> str | None:
        ballots = [Ballot(order=(i,), key=key) for i, key in enumerate(equivalence_classes(answers))]
        index = select(ballots, Select.MAJORITY)
        return None if index is None else answers[index]

    assert winner(["1/2", "0.5", r"\frac12", "3", "3"]) == "1/2"
    assert winner(["3", "3", "1/2", "0.5", r"\frac12"]) == "1/2"
    assert winner([None, None, "", "5"]) == "5"
    assert winner(["42", "43", "43", "42"]) == "42"


def test_a_chain_of_equal_pairs_does_not_join_its_ends():
    def near(first: str, second: str) -> bool:
        return abs(int(first) - int(second)) <= 1

    classes = equivalence_classes(["1", "2", "3"], same=near)
    assert classes[0] != classes[2]
    assert len(set(classes)) == 2


def test_an_undecided_pair_stays_apart():
    assert len(set(equivalence_classes(["x+1", "1+x"], same=lambda first, second: None))) == 2


def test_many_answers_are_grouped_by_key_alone():
    answers = [str(i) for i in range(CLASSES_MAX + 1)]

    def never(first: str, second: str) -> bool:
        raise AssertionError("compared")

    assert equivalence_classes([*answers, "1.0"], same=never)[-1] == "1"


@given(
    st.lists(st.sampled_from([None, *"abcdefgh"]), max_size=12),
    st.sets(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"))),
    st.randoms(use_true_random=False),
)
def test_any_relation_gives_classes_of_mutual_equals_whatever_the_order(
    answers: list[str | None], related: set[tuple[str, str]], rng: random.Random
):
    def same(first: str, second: str) -> bool:
        return (first, second) in related or (second, first) in related

    classes = dict(zip(answers, equivalence_classes(answers, same=same), strict=True))
    shuffled = rng.sample(answers, len(answers))
    assert dict(zip(shuffled, equivalence_classes(shuffled, same=same), strict=True)) == classes
    named = [answer for answer in classes if answer is not None]
    for first in named:
        for second in named:
            if first != second and classes[first] == classes[second]:
                assert same(first, second)
