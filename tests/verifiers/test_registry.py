"""Verifiers by name."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.registry import describe, find_verifier, verifier_names
from branchwise.verifiers.reward import RewardVerifier


def test_the_own_verifiers_are_listed_with_what_they_are():
    listed = {info.name: info for info in describe()}
    assert set(listed) == set(verifier_names()) >= {"prm", "replay"}
    assert listed["prm"].models == ("prm",)
    assert listed["prm"].step_scores
    assert not listed["prm"].sound
    assert listed["replay"].sound
    assert listed["replay"].oracle is None
    assert all(info.summary.endswith(".") for info in listed.values())


def test_each_search_gets_its_own():
    problem = Problem(text="1 + 1")
    first, second = find_verifier("prm", problem), find_verifier("prm", problem)
    assert isinstance(first, RewardVerifier)
    assert first is not second


def test_an_unknown_name_is_one_line_with_the_nearest():
    with pytest.raises(
        UsageError, match=r"^verifier 'replya': not known; did you mean replay\? there are: .*prm"
    ):
        find_verifier("replya", Problem(text="1 + 1"))
