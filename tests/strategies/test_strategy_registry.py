"""Strategies by name, and what a listing tells of them."""

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.registry import describe, find_strategy, strategy_names


def test_the_own_strategies_are_registered():
    assert set(strategy_names()) >= {"greedy", "best_of_n"}
    assert find_strategy("best_of_n") is BestOfN


def test_the_listing_tells_each_parameter_with_its_range():
    listed = {info.name: info for info in describe()}
    best_of_n = listed["best_of_n"]
    assert best_of_n.summary.startswith("Sample `n` complete solutions")
    assert best_of_n.lossless
    told = {
        parameter.name: (parameter.type, parameter.range, parameter.default)
        for parameter in best_of_n.parameters
    }
    assert told["n"] == ("an integer or none", "1 to 4096", 16)
    assert told["stop_on_verified"] == ("true or false", "", True)
    assert listed["greedy"].parameters == ()
    assert all(info.summary.endswith(".") for info in listed.values())
    assert all(info.summary.count("(") == info.summary.count(")") for info in listed.values())
    assert msgspec.json.encode(list(listed.values()))


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UsageError, match=r"'gredy': not known; did you mean greedy\?$"):
        find_strategy("gredy")
