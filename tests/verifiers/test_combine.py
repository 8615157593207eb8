"""Combined verifiers: three-valued logic, soundness, and members that fail."""

import math
from collections.abc import Sequence

import anyio
import pytest
from branchwise.engine.errors import UsageError
from branchwise.verifiers.base import Score
from branchwise.verifiers.combine import AllOf, AnyOf, FirstThatDecides
from branchwise.verifiers.worker import WorkerTimeout
from hypothesis import given
from hypothesis import strategies as st
from support.candidates import Says, candidate

PASS, FAIL = Score(value=1.0, verified=True), Score(value=0.0, verified=False)
UNKNOWN = Score(detail="cannot tell")


def proof(score: Score, **fields) -> Says:
    return Says(score, name="proof", sound=True, **fields)


def opinion(value: float | None, *steps: float, **fields) -> Says:
    fields = {"step_scores": bool(steps), **fields}
    return Says(Score(value=value, steps=steps), name="opinion", **fields)


def scored(kind, *members: Says, complete: bool = True) -> Score:
    return anyio.run(kind(members).score, candidate(complete=complete))


def told(score: Score) -> tuple[float | None, bool | None]:
    return score.value, score.verified


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([proof(PASS), opinion(0.3)], (0.3, True)),
        ([opinion(0.3), proof(PASS)], (0.3, True)),
        ([proof(FAIL), opinion(0.9)], (0.0, False)),
        ([opinion(0.9), proof(FAIL)], (0.0, False)),
        ([proof(UNKNOWN), opinion(0.9)], (None, None)),
        ([opinion(None), proof(FAIL)], (0.0, False)),
        ([opinion(None), proof(PASS)], (None, True)),
        ([opinion(0.0), opinion(None)], (0.0, None)),
        ([opinion(0.4), opinion(0.2)], (0.2, None)),
        ([opinion(0.4), opinion(None)], (None, None)),
        ([proof(PASS), proof(UNKNOWN)], (None, None)),
        ([proof(UNKNOWN), proof(FAIL)], (0.0, False)),
        ([proof(PASS), proof(PASS)], (1.0, True)),
    ],
)
def test_all_of_passes_what_all_pass(members: Sequence[Says], expected: tuple) -> None:
    assert told(scored(AllOf, *members)) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([proof(PASS), opinion(0.3)], (1.0, True)),
        ([opinion(0.3), proof(PASS)], (1.0, True)),
        ([proof(FAIL), opinion(0.9)], (0.9, None)),
        ([proof(FAIL), proof(FAIL)], (0.0, False)),
        ([proof(FAIL), proof(UNKNOWN)], (None, None)),
        ([opinion(1.0), opinion(None)], (1.0, None)),
        ([opinion(0.4), opinion(None)], (None, None)),
        ([opinion(0.4), opinion(0.2)], (0.4, None)),
    ],
)
def test_any_of_passes_what_one_passes(members: Sequence[Says], expected: tuple) -> None:
    assert told(scored(AnyOf, *members)) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([proof(UNKNOWN), opinion(0.4), opinion(0.9)], (0.4, None)),
        ([proof(PASS), opinion(0.4)], (1.0, True)),
        ([proof(FAIL), opinion(0.4)], (0.0, False)),
        ([Says(PASS, name="unsound"), proof(FAIL)], (1.0, None)),
        ([proof(UNKNOWN), opinion(None)], (None, None)),
    ],
)
def test_the_first_that_decides_decides(members: Sequence[Says], expected: tuple) -> None:
    assert told(scored(FirstThatDecides, *members)) == expected


def test_nobody_is_asked_after_the_decision() -> None:
    for kind, first in [(AllOf, FAIL), (AnyOf, PASS), (FirstThatDecides, PASS)]:
        rest = opinion(0.5)
        scored(kind, proof(first), rest)
        assert rest.asked == 0


@pytest.mark.parametrize("kind", [AllOf, AnyOf, FirstThatDecides])
@pytest.mark.parametrize(
    "fault", [ValueError("broken"), WorkerTimeout("late"), Score(value=math.nan), Score(value=1.5), None]
)
def test_a_member_that_fails_is_unknown_and_says_why(kind, fault: object) -> None:
    broken = Says(fault, name="broken", sound=True)
    alone = scored(kind, broken)
    assert told(alone) == (None, None)
    assert alone.detail.startswith("broken: failed: ")
    beside = scored(kind, broken, opinion(0.7))
    assert beside.verified is None
    assert beside.value == (0.7 if kind is FirstThatDecides else None)


def test_what_a_combination_is_follows_from_its_members() -> None:
    members = (
        Says(PASS, name="a", sound=True, models=("prm",), stats_top_k=5),
        Says(PASS, name="b", oracle=True, step_scores=True, models=("prm", "judge"), stats_top_k=20),
    )
    both = AllOf(members)
    assert (both.sound, both.oracle, both.step_scores) == (True, True, True)
    assert both.models == ("prm", "judge")
    assert both.stats_top_k == 20
    assert both.name == "all_of(of=[a, b])"
    nested = AnyOf((FirstThatDecides((both,)), opinion(0.1)))
    assert nested.oracle
    assert nested.name == "any_of(of=[first_that_decides(of=[all_of(of=[a, b])]), opinion])"
    plain = AllOf((opinion(0.1),))
    assert (plain.sound, plain.oracle, plain.step_scores) == (False, False, False)


def test_partial_work_is_scored_by_those_who_score_steps() -> None:
    whole, stepwise = proof(UNKNOWN), opinion(0.4, 0.8, 0.4)
    partial = scored(AllOf, whole, stepwise, complete=False)
    assert (partial.value, partial.steps, whole.asked) == (0.4, (0.8, 0.4), 0)
    assert told(scored(AllOf, whole, stepwise)) == (None, None)
    lenient = proof(PASS, step_scores=True)
    assert scored(AllOf, whole, lenient, complete=False).verified is None, "one sound member was not asked"


def test_steps_are_joined_one_by_one() -> None:
    members = [opinion(0.4, 0.8, 0.4), opinion(0.5, 0.5, 0.9)]
    assert scored(AllOf, *members).steps == (0.5, 0.4)
    assert scored(AnyOf, *members).steps == (0.8, 0.9)
    assert scored(AllOf, opinion(0.4, 0.8, 0.4), opinion(0.1, 0.1)).steps == (0.8, 0.4)


@pytest.mark.parametrize("kind", [AllOf, AnyOf, FirstThatDecides])
def test_a_combination_of_nothing_is_refused(kind) -> None:
    with pytest.raises(UsageError, match="of is empty; give 1 verifier or more"):
        kind(())


members = st.lists(
    st.builds(
        lambda value, verified, sound: Says(Score(value=value, verified=verified), sound=sound),
        st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        st.sampled_from([None, True, False]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(members)
def test_only_sound_members_verify_or_refute(given_members: list[Says]) -> None:
    verdicts = {member.given.verified for member in given_members if member.sound}
    for kind in (AllOf, AnyOf, FirstThatDecides):
        assert scored(kind, *given_members).verified in {None, *verdicts}


@given(members)
def test_no_order_of_the_members_changes_the_verdict_of_all_and_any(given_members: list[Says]) -> None:
    for kind in (AllOf, AnyOf):
        assert scored(kind, *given_members).verified == scored(kind, *reversed(given_members)).verified
