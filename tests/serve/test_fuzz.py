"""The server against bodies made from its own OpenAPI: whatever comes, it is no fault of the server."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from branchwise.reasoning.tools.calculator import CALCULATOR
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

if TYPE_CHECKING:
    from support.serving import ServerThread

pytestmark = pytest.mark.slow

SLOW_TO_DRAW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
SEARCHES = ("/v1/chat/completions", "/v1/completions")
READABLE = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "12 + 7*3 - 5"}]},
    "/v1/completions": {"prompt": "12 + 7*3 - 5"},
}
REFUSED = ("strategy", "tools", "suffix", "n")
CALL = {"type": "function", "function": {"name": "calculator"}}


@pytest.fixture(scope="module")
def operations(server: "ServerThread") -> dict[str, Any]:
    """The operations that the server describes, by path."""
    schema = schemathesis.openapi.from_url(f"{server.url}/docs/openapi.json")
    found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    return {operation.path: operation for operation in found}


def fuzz(operation: Any, mode: GenerationMode, examples: int, change: Callable[[Any], None]) -> set[int]:
    """Call the operation with so many cases, changed; the statuses that came back."""
    statuses: set[int] = set()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, suppress_health_check=SLOW_TO_DRAW, database=None)
    def call(case: Any) -> None:
        change(case)
        statuses.add(case.call_and_validate(checks=[not_a_server_error], timeout=60).status_code)

    call()
    return statuses


def as_it_is(case: Any) -> None:
    return None


def readable(case: Any) -> None:
    """Make the case one that is searched, whatever its other options say."""
    body = dict(case.body) if isinstance(case.body, dict) else {}
    body |= {"model": "reference:best_of_n(n=2)", "budget": {"tokens": 60}, **READABLE[case.path]}
    body = {name: value for name, value in body.items() if name not in REFUSED}
    if body.get("logit_bias"):
        body["logit_bias"] = {str(token): bias for token, bias in enumerate(body["logit_bias"].values())}
    if body.get("tool_choice") is not None:
        body.pop("response_format", None)
        chosen = body["tool_choice"]
        body |= {
            "tools": [CALCULATOR.as_openai()],
            "tool_choice": CALL if isinstance(chosen, dict) else "required",
        }
    if body.get("best_of") is not None:
        body["model"] = "reference"
    case.body = body


def test_the_description_has_every_endpoint(operations: dict[str, Any]) -> None:
    assert {*SEARCHES, "/v1/models", "/healthz", "/metrics"} <= set(operations)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_server_fail(operations: dict[str, Any], mode: GenerationMode) -> None:
    for path, operation in operations.items():
        if mode is GenerationMode.POSITIVE or path in SEARCHES:
            assert fuzz(operation, mode, 60, as_it_is)


@pytest.mark.parametrize("path", SEARCHES)
def test_no_option_of_a_readable_problem_makes_the_server_fail(operations: dict[str, Any], path: str) -> None:
    assert 200 in fuzz(operations[path], GenerationMode.POSITIVE, 80, readable)
