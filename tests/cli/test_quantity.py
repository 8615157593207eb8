"""Budgets and sizes from text."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.cli.quantity import format_budget, parse_budget, parse_bytes, parse_settings


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("tokens=4096", Budget(tokens=4096)),
        ("tokens=4096,seconds=60", Budget(tokens=4096, seconds=60.0)),
        (" tokens = 16k , flops=2T ", Budget(tokens=16000, flops=2 * 10**12)),
        ("flops=1.5e12", Budget(flops=15 * 10**11)),
        ("tokens=1.5k", Budget(tokens=1500)),
        ("tokens=16_384,answer_reserve=0", Budget(tokens=16384, answer_reserve=0)),
        ("kv_tokens=900,seconds=0.5", Budget(kv_tokens=900, seconds=0.5)),
    ],
)
def test_a_budget_is_read(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tokens=-5", "tokens=-5"),
        ("tokens=0", "tokens=0"),
        ("tokens=many", "tokens=many"),
        ("tokens=1.5", "tokens=1.5"),
        ("tokens=1e400", "tokens=1e400"),
        ("tokens=", "tokens="),
        ("4096", "tokens=16384"),
        ("", "tokens=16384"),
        ("token=5", "did you mean tokens"),
        ("tokens=5,tokens=6", "twice"),
        ("seconds=soon", "seconds=60"),
        ("seconds=nan", "seconds=nan"),
        ("seconds=inf", "seconds=inf"),
        ("seconds=0", "seconds=0"),
        ("tokens=8,answer_reserve=8", "answer_reserve=8"),
    ],
)
def test_a_bad_budget_names_the_value_and_what_is_right(text: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["tokens=4096", "tokens=10,seconds=1.5", "flops=7,kv_tokens=3"])
def test_a_budget_is_printed_as_it_is_read(text: str) -> None:
    assert format_budget(parse_budget(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("512MiB", 2**29), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("4096", 4096), ("64B", 64)],
)
def test_a_memory_size_is_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "0", "2XiB"])
def test_a_bad_memory_size_says_what_is_right(text: str) -> None:
    with pytest.raises(UsageError, match="2GiB"):
        parse_bytes(text)


def test_settings_are_pairs() -> None:
    assert parse_settings(["n=32", "select = majority"]) == {"n": "32", "select": "majority"}
    with pytest.raises(UsageError, match="--set n=32"):
        parse_settings(["n"])
