"""Sampling parameters: what is in range, and the one line that says what is not."""

from typing import Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.sampling.params import GREEDY, SamplingParams


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -1.0, "temperature is -1.0: expected `float` >= 0.0"),
        ("temperature", float("nan"), "temperature is nan: expected `float` >= 0.0"),
        ("top_k", 1.5, "top_k is 1.5: expected `int`, got `float`"),
        ("top_p", 1.01, "top_p is 1.01: expected `float` <= 1.0"),
        ("min_p", -0.1, "min_p is -0.1: expected `float` >= 0.0"),
        ("repetition_penalty", 0.0, "repetition_penalty is 0.0: expected `float` > 0.0"),
        ("presence_penalty", 2.5, "presence_penalty is 2.5: expected `float` <= 2.0"),
        ("frequency_penalty", -2.5, "frequency_penalty is -2.5: expected `float` >= -2.0"),
        ("logit_bias", {3: 101.0}, "logit_bias is {3: 101.0}: expected `float` <= 100.0"),
        ("logit_bias", {-3: 1.0}, "logit_bias is {-3: 1.0}: expected `int` >= 0"),
        ("logit_bias", {3: float("nan")}, "logit_bias is {3: nan}: expected `float` <= 100.0"),
        ("allowed_tokens", (), "allowed_tokens is (): expected `array` of length >= 1"),
        ("allowed_tokens", (4, -1), "allowed_tokens is (4, -1): expected `int` >= 0"),
        ("min_tokens", -1, "min_tokens is -1: expected `int` >= 0"),
        ("top_logprobs", 1001, "top_logprobs is 1001: expected `int` <= 1000"),
        ("stats_top_k", -1, "stats_top_k is -1: expected `int` >= 0"),
    ],
)
def test_a_value_out_of_range_is_one_clear_line(field: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        SamplingParams(**{field: value})
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_long_values_are_shown_in_part() -> None:
    with pytest.raises(UsageError) as raised:
        SamplingParams(allowed_tokens=(*range(5000), -1))
    assert len(str(raised.value)) < 150


def test_values_are_kept_in_their_own_type() -> None:
    params = SamplingParams(temperature=1, allowed_tokens=[3, 4], logit_bias={7: -1})  # pyright: ignore[reportArgumentType]
    assert params.allowed_tokens == (3, 4)
    assert isinstance(params.temperature, float)
    assert params.logit_bias == {7: -1.0}
    assert SamplingParams(logit_bias={7: float("-inf")}).logit_bias[7] == float("-inf")


def test_nothing_is_asked_for_by_default() -> None:
    for params in (SamplingParams(), GREEDY):
        assert not params.penalises
        assert not params.tells
