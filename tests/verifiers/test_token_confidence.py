"""DeepConf's figures over hand-made traces, and the faults of public implementations."""

import math

import numpy as np
import pytest
from branchwise.verifiers.token_confidence import (
    GroupConfidence,
    bottom_groups,
    group_means,
    lowest_group,
    mean_confidence,
    stop_threshold,
    tail_confidence,
)
from hypothesis import given
from hypothesis import strategies as st

confidences = st.lists(st.floats(0, 40), min_size=1, max_size=60)
windows = st.integers(1, 20)


def test_a_trace_shorter_than_the_window_is_its_mean_and_not_zero():
    trace = [3.0, 5.0, 4.0]
    assert lowest_group(trace, 2048) == bottom_groups(trace, 2048) == tail_confidence(trace, 2048) == 4.0


def test_no_token_has_no_confidence():
    assert [figure([]) for figure in (lowest_group, bottom_groups, tail_confidence, mean_confidence)] == [
        None
    ] * 4


def test_golden_windows():
    trace = [4.0, 2.0, 6.0, 8.0, 1.0, 1.0]
    assert group_means(trace, 2) == [3.0, 4.0, 7.0, 4.5, 1.0]
    assert lowest_group(trace, 2) == 1.0
    assert bottom_groups(trace, 2, 0.4) == 2.0
    assert tail_confidence(trace, 3) == pytest.approx(10 / 3)
    assert mean_confidence(trace) == pytest.approx(22 / 6)


def test_the_bottom_tenth_of_few_groups_is_one_group():
    assert bottom_groups([1.0, 2.0, 3.0], 1) == 1.0
    assert bottom_groups([float(value) for value in range(30)], 1) == 1.0


def test_an_impossible_token_makes_only_its_own_windows_infinite():
    assert group_means([1.0, math.inf, 3.0, 5.0], 2) == [math.inf, math.inf, 4.0]


@given(confidences, windows)
def test_windows_are_the_plain_means_of_their_slices(values, window):
    slices = [values[at : at + window] for at in range(max(1, len(values) - window + 1))]
    assert group_means(values, window) == pytest.approx([sum(s) / len(s) for s in slices], abs=1e-9)


@given(confidences, windows)
def test_online_and_offline_see_the_same_lowest_group(values, window):
    group = GroupConfidence(window)
    for value in values:
        group.push(value)
    assert group.lowest == (lowest_group(values, window) if len(values) >= window else None)
    assert group.full == (len(values) >= window)


def test_online_mean_before_the_window_is_full_decides_nothing():
    group = GroupConfidence(3)
    assert group.mean is None
    assert [group.push(value) for value in (0.0, 0.0, 3.0, 6.0)] == [None, None, 1.0, 3.0]
    assert group.lowest == 1.0


@given(st.lists(st.floats(0, 40), min_size=1, max_size=40), st.floats(1, 100))
def test_threshold_is_the_percentile_of_the_warm_up(lowest, kept):
    assert stop_threshold(lowest, kept) == pytest.approx(float(np.percentile(lowest, 100 - kept)))


def test_golden_thresholds_of_sixteen_warm_up_traces():
    lowest = [float(value) for value in range(16)]
    assert stop_threshold(lowest, 10) == 13.5
    assert stop_threshold(lowest, 90) == 1.5


@pytest.mark.parametrize("call", [lambda: GroupConfidence(0), lambda: stop_threshold([], 10)])
def test_what_has_no_meaning_is_refused(call):
    with pytest.raises(ValueError, match=r"give|at least"):
        call()
