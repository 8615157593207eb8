"""Classes by seniority: what joins, and that nothing which comes later changes them."""

import pytest
from branchwise.verifiers.answer import canonical
from branchwise.verifiers.classes import CLASSES_MAX, equivalence_classes
from branchwise.verifiers.partition import partition
from hypothesis import given
from hypothesis import strategies as st

letters = st.sampled_from([None, *"abcdefgh"])
relations = st.sets(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")))


def classes(answers: list[str | None], related: set[tuple[str, str]]) -> list[str | None]:
    def equal(first: str, second: str) -> bool:
        return (first, second) in related or (second, first) in related

    return partition(answers, answers, equal)


@given(st.lists(letters, max_size=12), relations, st.integers(0, 12))
def test_the_classes_of_the_first_do_not_depend_on_those_behind(
    answers: list[str | None], related: set[tuple[str, str]], count: int
):
    assert classes(answers, related)[:count] == classes(answers[:count], related)


@given(st.lists(letters, max_size=12), relations)
def test_any_relation_gives_classes_of_mutual_equals_named_by_their_first(
    answers: list[str | None], related: set[tuple[str, str]]
):
    names = classes(answers, related)
    for first, name in zip(answers, names, strict=True):
        assert (name is None) == (first is None)
        for second, other in zip(answers, names, strict=True):
            if name is not None and name == other and first != second:
                assert (first, second) in related or (second, first) in related
    for name in {name for name in names if name is not None}:
        assert answers[names.index(name)] == name


@given(st.lists(st.none() | st.integers(0, 99).map(str), max_size=20))
def test_of_a_transitive_equality_they_are_the_equivalence_classes(answers: list[str | None]):
    def alike(first: str, second: str) -> bool:
        return int(first) % 7 == int(second) % 7

    mine = partition(answers, [None if a is None else canonical(a) for a in answers], alike)
    theirs = equivalence_classes(answers, same=alike)
    pairs = [(i, j) for i in range(len(answers)) for j in range(i)]
    assert [mine[i] == mine[j] for i, j in pairs] == [theirs[i] == theirs[j] for i, j in pairs]


def test_answers_of_one_key_are_compared_once_as_the_first_of_them_is_written():
    asked = []

    def equal(first: str, second: str) -> bool:
        asked.append((first, second))
        return True

    assert partition(["1/2", "0.5", "x", r"\frac12"], ["h", "h", "x", "h"], equal) == ["h"] * 4
    assert asked == [("1/2", "x")]


@pytest.mark.parametrize("extra", [0, 1, 5])
def test_beyond_the_cap_each_new_key_is_its_own_class(extra: int):
    answers = [str(i) for i in range(CLASSES_MAX + extra)]
    names = partition(answers, answers, lambda first, second: True)
    assert names == ["0"] * CLASSES_MAX + answers[CLASSES_MAX:]
