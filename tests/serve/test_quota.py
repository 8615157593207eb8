"""Rates per key: a minute's worth, refills, and what was reserved and not spent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.serve.errors import ApiError
from branchwise.serve.keys import Caller, Quota
from branchwise.serve.quota import Rates


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def caller(**quota: int) -> Caller:
    return Caller(name="a", namespace="a", quota=Quota(**quota))


def test_requests_beyond_the_minutes_are_refused_until_the_bucket_fills() -> None:
    clock = Clock()
    rates, who = Rates(clock), caller(requests_per_minute=2)
    for _ in range(2):
        rates.reserve(who, 10)
    with pytest.raises(ApiError) as caught:
        rates.reserve(who, 10)
    assert caught.value.status == 429
    assert caught.value.headers["Retry-After"] == "30"
    clock.now = 30.0
    rates.reserve(who, 10)


def test_tokens_that_were_not_spent_go_back_once() -> None:
    rates, who = Rates(Clock()), caller(tokens_per_minute=100)
    held = rates.reserve(who, 100)
    with pytest.raises(ApiError):
        rates.reserve(who, 1)
    held.settle(60)
    held.settle(0)
    rates.reserve(who, 40)
    with pytest.raises(ApiError):
        rates.reserve(who, 1)


def test_a_budget_that_no_minute_covers_is_a_bad_request() -> None:
    with pytest.raises(ApiError) as caught:
        Rates(Clock()).reserve(caller(tokens_per_minute=100), 101)
    assert caught.value.status == 400


def test_a_refused_request_takes_nothing() -> None:
    rates, who = Rates(Clock()), caller(requests_per_minute=2, tokens_per_minute=10)
    held = rates.reserve(who, 10)
    with pytest.raises(ApiError):
        rates.reserve(who, 5)
    held.settle(0)
    rates.reserve(who, 10)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60), st.floats(0, 30)), max_size=30))
def test_no_minute_spends_more_than_two_buckets(asks: list[tuple[int, int, float]]) -> None:
    clock = Clock()
    rates, who = Rates(clock), caller(tokens_per_minute=60)
    spent: list[tuple[float, int]] = []
    for tokens, used, wait in asks:
        clock.now += wait
        try:
            held = rates.reserve(who, tokens)
        except ApiError:
            continue
        held.settle(min(used, tokens))
        spent.append((clock.now, min(used, tokens)))
        window = sum(amount for at, amount in spent if at > clock.now - 60)
        assert window <= 120
