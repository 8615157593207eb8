"""pass@k and estimates over subsets against golden values and brute force."""

import math
from itertools import combinations

import pytest
from branchwise.evals.statistics.subsets import all_right_at_k, mean_over_subsets, pass_at_k
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.pins("human-eval#35")
@pytest.mark.pins("human-eval#68")
def test_pass_at_more_than_was_sampled_is_not_known() -> None:
    assert math.isnan(pass_at_k(2, 0, 5))
    assert math.isnan(pass_at_k(2, 2, 5))
    assert math.isnan(all_right_at_k(2, 2, 5))
    assert math.isnan(mean_over_subsets(2, 5, lambda indices: 1.0))


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (10, 3, 1, 0.3),
        (10, 3, 5, 0.9166667),
        (10, 0, 5, 0),
        (10, 10, 10, 1),
        (4, 1, 4, 1),
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_has_the_golden_values(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value, abs=5e-8)


@pytest.mark.pins("verl#7240")
def test_the_best_of_all_samples_holds_the_only_right_one() -> None:
    assert mean_over_subsets(4, 4, lambda indices: float(2 in indices)) == 1.0


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_both_closed_forms_equal_a_count_of_subsets(case: tuple[int, int, int]) -> None:
    n, c, k = case
    subsets = list(combinations(range(n), k))
    any_right = sum(min(s) < c for s in subsets) / len(subsets)
    all_right = sum(max(s) < c for s in subsets) / len(subsets)
    assert pass_at_k(n, c, k) == pytest.approx(any_right)
    assert all_right_at_k(n, c, k) == pytest.approx(all_right)
    assert mean_over_subsets(n, k, lambda s: float(min(s) < c)) == pytest.approx(any_right)


def test_random_subsets_estimate_what_all_of_them_give() -> None:
    exact = pass_at_k(40, 4, 8)
    assert mean_over_subsets(40, 8, lambda s: float(min(s) < 4), subsets=4000) == pytest.approx(
        exact, abs=0.03
    )


def test_no_order_of_the_samples_changes_pass_at_k_of_a_vote() -> None:
    right = [1, 0, 0, 1, 0, 1, 0, 0]

    def any_right(order: list[int]) -> float:
        return mean_over_subsets(8, 3, lambda s: float(any(right[order[i]] for i in s)))

    assert any_right(list(range(8))) == any_right([7, 3, 1, 0, 2, 6, 5, 4])


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="give 0 <= c <= n"):
        pass_at_k(n, c, k)
