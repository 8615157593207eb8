"""Loose arguments of other harnesses become checked ones, or one line that says what is wrong."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.interop.arguments import Solving, read_arguments
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.cli.requests import Opening


def test_arguments_are_sorted_by_what_they_are_for_and_read_from_text() -> None:
    opening, solving = read_arguments(
        {
            "model": "reference",
            "threads": "2",
            "strategy": "greedy",
            "seed": "7",
            "oracle": "true",
            "prm": None,
        }
    )
    assert opening == Opening(model="reference", threads=2)
    assert solving == Solving(strategy="greedy", seed=7, oracle=True)


def test_options_are_those_of_the_reasoner() -> None:
    opening, solving = read_arguments({"kv_memory": "1MiB", "budget": "tokens=2k,seconds=9"})
    assert opening.kv_memory == 2**20
    assert solving.options()["budget"] == Budget(tokens=2000, seconds=9.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"strategi": "greedy"}, "argument 'strategi': not known; did you mean strategy"),
        ({"strategy": "best_of(n=2)"}, "best_of"),
        ({"budget": "token=2"}, "budget 'token'"),
        ({"seed": "-1"}, "seed"),
        ({"threads": "many"}, "threads"),
        ({"device": "tpu"}, "tpu"),
        ({"kv_memory": "big"}, "memory size 'big'"),
        ({"verifier": "nobody"}, "nobody"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(given: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        read_arguments(given)
    assert "\n" not in str(caught.value)
