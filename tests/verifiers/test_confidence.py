"""Confidence out of the engine's token statistics, in [0, 1] without changing any order."""

import math

import anyio
import pytest
from branchwise.engine.sampling.detail import TokenStats
from branchwise.verifiers.base import Score, StepSpan
from branchwise.verifiers.confidence import ConfidenceVerifier, Measure
from hypothesis import given
from hypothesis import strategies as st
from support.candidates import candidate


def step(*confidences: float, start: int = 0, logprob: float = -0.5, told: bool = True) -> StepSpan:
    count = len(confidences)
    stats = tuple(TokenStats(entropy=c / 2, self_certainty=c * 3, confidence=c) for c in confidences)
    return StepSpan(start, start + count, "x", True, (logprob,) * count, stats if told else ())


FORCED = StepSpan(0, 2, "forced")


def score(verifier: ConfidenceVerifier, *steps: StepSpan) -> Score:
    return anyio.run(verifier.score, candidate("work", steps=steps))


@pytest.mark.parametrize(
    ("measure", "figure"),
    [
        (Measure.LOGPROB, math.exp(-0.5)),
        (Measure.ENTROPY, math.exp(-1.5)),
        (Measure.SELF_CERTAINTY, 9 / 10),
        (Measure.MEAN, 3 / 4),
        (Measure.LOWEST_GROUP, 1.5 / 2.5),
        (Measure.BOTTOM_GROUPS, 1.5 / 2.5),
        (Measure.TAIL, 4 / 5),
    ],
)
def test_golden_values_of_each_measure(measure: Measure, figure: float) -> None:
    told = score(
        ConfidenceVerifier(measure, window=2), step(3.0, 2.0, 1.0), step(2.0, 6.0), step(2.0, 5.0, 3.0)
    )
    trace = [3.0, 2.0, 1.0, 2.0, 6.0, 2.0, 5.0, 3.0]
    assert sum(trace) / len(trace) == 3.0
    assert told.value == pytest.approx(figure)
    assert told.verified is None


def test_a_step_has_the_mean_of_its_tokens() -> None:
    told = score(ConfidenceVerifier(), step(1.0, 3.0), step(4.0))
    assert told.steps == pytest.approx((2 / 3, 4 / 5))


def test_forced_tokens_do_not_count() -> None:
    told = score(ConfidenceVerifier(Measure.MEAN), step(3.0), FORCED)
    assert told.value == pytest.approx(0.75)
    assert told.steps == (), "one value per step, or none"
    assert score(ConfidenceVerifier(), FORCED) == Score(detail="no sampled token")
    assert score(ConfidenceVerifier()) == Score(detail="no sampled token")


def test_missing_statistics_are_told_and_no_figure_is_made_up() -> None:
    told = score(ConfidenceVerifier(), step(3.0), step(3.0, told=False))
    assert told.value is None
    assert "without statistics" in told.detail
    assert score(ConfidenceVerifier(Measure.LOGPROB), step(3.0, told=False)).value is not None


def test_statistics_are_asked_for_as_needed() -> None:
    assert ConfidenceVerifier().stats_top_k == 20
    assert ConfidenceVerifier(top_k=5).stats_top_k == 5
    assert ConfidenceVerifier(Measure.LOGPROB).stats_top_k == 0


def test_no_number_is_no_score() -> None:
    assert score(ConfidenceVerifier(Measure.MEAN), step(math.nan)).value is None
    assert score(ConfidenceVerifier(Measure.MEAN), step(math.inf, 1.0)).value == 1.0
    assert score(ConfidenceVerifier(Measure.LOGPROB), step(1.0, logprob=-math.inf)).value == 0.0


@given(
    st.sampled_from(Measure),
    st.lists(st.floats(0.01, 30), min_size=1, max_size=20),
    st.floats(0.01, 20),
    st.integers(1, 8),
)
def test_surer_is_never_lower(measure, trace, more, window):
    verifier = ConfidenceVerifier(measure, window=window)
    if measure is Measure.ENTROPY:
        more = -min(more, min(trace) / 2)
    before = score(verifier, step(*trace, logprob=-1.0))
    after = score(verifier, step(*(value + more for value in trace), logprob=-0.5))
    assert before.value is not None
    assert after.value is not None
    assert 0.0 <= before.value < after.value <= 1.0
