"""Control, Scaling and Performance, by hand."""

import pytest
from branchwise.evals.statistics.forcing import control, performance, scaling


def test_control_is_the_share_of_runs_within_their_limits() -> None:
    assert control([True, True, False, True]) == 0.75
    assert control([True]) == 1.0
    with pytest.raises(ValueError, match="at least one"):
        control([])


def test_scaling_is_the_mean_slope_over_all_pairs() -> None:
    # Slopes: (.5-.3)/100, (.4-.3)/300, (.4-.5)/200.
    assert scaling([(100, 0.3), (400, 0.4), (200, 0.5)]) == pytest.approx((0.002 + 1 / 3000 - 0.0005) / 3)
    assert scaling([(0, 0.0), (10, 1.0)]) == pytest.approx(0.1)


def test_settings_of_one_length_make_no_slope() -> None:
    assert scaling([(100, 0.3)]) is None
    assert scaling([(100, 0.3), (100, 0.9)]) is None
    assert scaling([(100, 0.3), (100, 0.5), (200, 0.6)]) == pytest.approx((0.003 + 0.001) / 2)


def test_performance_is_the_best_setting() -> None:
    assert performance([(100, 0.3), (200, 0.5), (400, 0.4)]) == 0.5
