"""What n-gram and suffix drafters propose, and for whom they remember it."""

import random

import pytest
from branchwise.engine.drafting.automaton import ROOT, SuffixAutomaton
from branchwise.engine.drafting.ngram import NgramDrafter
from branchwise.engine.drafting.params import Ngram, Suffix, parse_speculate
from branchwise.engine.drafting.suffix import SuffixDrafter
from branchwise.engine.errors import UsageError
from branchwise.engine.protocol import EngineUsage
from branchwise.engine.sched.sequence import Sequence
from hypothesis import given
from hypothesis import strategies as st
from support.checks import Rig

TEXT = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def opened(rig: Rig, tokens: list[int], *, usage: EngineUsage | None = None, namespace: str = "") -> Sequence:
    seq = rig.open(tokens, usage=usage, namespace=namespace)
    return rig.scheduler.family.sequences[seq]


def test_ngram_copies_behind_the_longest_match() -> None:
    sequence = opened(Rig(), [1, 2, 3, 9, 2, 3, 8, 8, 1, 2, 3])
    assert NgramDrafter().propose(sequence, 4, 1) == [[9, 2, 3, 8]]


def test_ngram_takes_the_latest_of_equal_matches_and_goes_on_in_loops() -> None:
    assert NgramDrafter().propose(opened(Rig(), [5, 6, 1, 4, 5, 6, 2, 3, 5, 6]), 2, 1) == [[2, 3]]
    assert NgramDrafter().propose(opened(Rig(), [9, 4, 4, 4]), 5, 1) == [[4] * 5]
    assert NgramDrafter().propose(opened(Rig(), [1, 2, 1, 2, 1, 2]), 5, 1) == [[1, 2, 1, 2, 1]]


def test_ngram_proposes_nothing_without_a_match() -> None:
    assert NgramDrafter().propose(opened(Rig(), [1, 2, 3, 4]), 4, 1) == ()
    assert NgramDrafter().propose(opened(Rig(), [1]), 4, 1) == ()


@given(text=TEXT, grown=st.integers(1, 5))
def test_ngram_equals_a_search_of_the_whole_text(text: list[int], grown: int) -> None:
    """Grown piece by piece, as a sequence grows."""
    sequence = opened(Rig(), text[:1])
    drafter = NgramDrafter()
    for end in range(1, len(text) + grown, grown):
        sequence.tokens[:] = text[:end]
        found = drafter.propose(sequence, 1, 1)
        matches = _matches(text[:end])
        assert bool(found) == bool(matches)
        if found and len(text) < 9:  # with few places all of them are compared
            assert found[0][0] == text[max(matches)[1]]


def _matches(text: list[int]) -> list[tuple[int, int]]:
    """(tokens that agree, where the match ends) of every earlier occurrence of the last pair."""
    found: list[tuple[int, int]] = []
    for end in range(2, len(text)):
        length = 0
        while length < end and text[end - 1 - length] == text[-1 - length]:
            length += 1
        if length >= 2:
            found.append((length, end))
    return found


@given(texts=st.lists(TEXT, min_size=1, max_size=4), data=st.data())
def test_the_automaton_knows_exactly_the_runs_of_its_texts(
    texts: list[list[int]], data: st.DataObject
) -> None:
    """Texts grow in any order, as branches do."""
    automaton = SuffixAutomaton()
    states, lengths = [ROOT] * len(texts), [0] * len(texts)
    while any(length < len(text) for length, text in zip(lengths, texts, strict=True)):
        open_ones = [i for i, text in enumerate(texts) if lengths[i] < len(text)]
        i = data.draw(st.sampled_from(open_ones))
        states[i] = automaton.extend(states[i], texts[i][lengths[i]])
        lengths[i] += 1
    runs = {tuple(t[i:j]) for t in texts for i in range(len(t)) for j in range(i + 1, len(t) + 1)}
    assert _runs(automaton, ROOT, ()) == runs
    assert len(automaton) <= 2 * sum(map(len, texts)) + 1


def _runs(automaton: SuffixAutomaton, state: int, run: tuple[int, ...]) -> set[tuple[int, ...]]:
    found: set[tuple[int, ...]] = set()
    for token, target in automaton.next(state).items():
        found |= {(*run, token)} | _runs(automaton, target, (*run, token))
    return found


def test_suffix_proposes_what_siblings_wrote_most_often() -> None:
    rig, usage, drafter = Rig(), EngineUsage(), SuffixDrafter()
    for tail in ([4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 9, 9]):
        drafter.observe(opened(rig, [1, 2, *tail], usage=usage))
    reader = opened(rig, [3, 3, 4, 5], usage=usage)
    assert drafter.propose(reader, 2, 1) == [(6, 7)]


def test_suffix_counts_the_start_that_branches_share_once() -> None:
    rig, usage, drafter = Rig(), EngineUsage(), SuffixDrafter()
    shared = [1, 2, 8, 1, 2, 9, 1, 2, 9]
    for own in range(20, 30):
        drafter.observe(opened(rig, [*shared, own], usage=usage))
    automaton = drafter.group(opened(rig, [1], usage=usage)).automaton
    assert len(automaton) < 40


def test_a_finished_branch_is_remembered_until_its_search_ends() -> None:
    rig, usage, drafter = Rig(), EngineUsage(), SuffixDrafter()
    reader = opened(rig, [3, 4, 5], usage=usage)
    finished = opened(rig, [1, 4, 5, 6], usage=usage)
    drafter.observe(finished)
    rig.scheduler.release(finished.id)
    drafter.forget(finished)
    assert drafter.propose(reader, 1, 1) == [(6,)]
    rig.scheduler.release(reader.id)
    drafter.forget(reader)
    assert drafter.propose(opened(rig, [3, 4, 5], usage=usage), 1, 1) == []


@pytest.mark.parametrize("other", ["search", "namespace"])
def test_nothing_crosses_from_one_search_or_namespace_to_another(other: str) -> None:
    rig, usage, drafter = Rig(), EngineUsage(), SuffixDrafter()
    drafter.observe(opened(rig, [1, 4, 5, 6, 7], usage=usage, namespace="a"))
    same = opened(rig, [2, 4, 5], usage=usage, namespace="a")
    stranger = opened(
        rig,
        [2, 4, 5],
        usage=EngineUsage() if other == "search" else usage,
        namespace="b" if other == "namespace" else "a",
    )
    assert drafter.propose(stranger, 2, 1) == []
    assert drafter.propose(same, 2, 1) == [(6, 7)]


def test_a_cut_sequence_is_read_again() -> None:
    rig = Rig()
    rng = random.Random(0)
    sequence = opened(rig, [rng.randrange(50) for _ in range(20)])
    drafter = SuffixDrafter()
    drafter.observe(sequence)
    del sequence.tokens[5:]
    sequence.tokens += [sequence.tokens[1]]
    drafter.observe(sequence)
    sequence.tokens += [sequence.tokens[2]]
    assert drafter.propose(sequence, 2, 1) == [tuple(sequence.tokens[3:5])]


def test_the_grammar() -> None:
    assert parse_speculate("ngram") == Ngram(k=4)
    assert parse_speculate(" suffix( k = 6 ) ") == Suffix(k=6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "give one of"),
        ("eagle(k=4)", "ngram(k=4, verify=coupled|ratio), suffix(k=8, width=1, verify=coupled|ratio)"),
        ("ngram(4)", "written parameter=value"),
        ("ngram(k=0)", ">= 1"),
        ("ngram(k=99)", "<= 32"),
        ("ngram(k=x)", "write ngram(k=4, "),
        ("suffix(n=3)", "unknown field `n`"),
    ],
)
def test_a_wrong_name_is_one_line_that_says_what_is_right(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_speculate(text)
    message = str(caught.value)
    assert says in message
    assert "\n" not in message
