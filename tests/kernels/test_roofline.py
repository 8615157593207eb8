"""The tables of docs/kernels.md are what the code computes, and each kernel of the table exists."""

from collections.abc import Callable
from pathlib import Path

import pytest
from branchwise.kernels.bounds import H200
from branchwise.kernels.roofline import KERNELS, attention_table, kernel_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"


@pytest.mark.parametrize("table", [attention_table, kernel_table])
def test_the_page_shows_the_table(table: Callable[[], str]) -> None:
    assert table() in PAGE.read_text()


def test_each_kernel_with_a_bound_is_explained() -> None:
    explained = PAGE.read_text().partition("## The plan")[0]
    bounded = {name for names, *_ in KERNELS for name in names.split(", ")}
    assert {name for name in bounded if f"`{name}`" not in explained} == set()


def test_no_goal_is_below_its_bound() -> None:
    for name, shape, bound, goal in KERNELS:
        if goal.isdigit():
            assert float(goal) > bound.seconds(H200) * 1e6, f"{name} {shape}"
