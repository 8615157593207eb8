"""LangGraph and LangChain's OpenAI model as clients: the agent of the examples, and what it is made of."""

import importlib.util
import operator
import random
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import pytest
from branchwise import Budget
from branchwise.evals.reference.tasks import toolcall
from branchwise.evals.reference.tasks.trace import Split
from support.sentences import solved

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("langgraph", reason="needs branchwise[langgraph]")
pytest.importorskip("langchain.agents", reason="needs branchwise[langgraph]")
pytest.importorskip("langchain_openai", reason="needs branchwise[langgraph]")

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from support.serving import ServerThread

SUM = "12 + 7*3 - 5"
CALLING = "Use the calculator: 37*45 + 12"


class Value(BaseModel):
    """What a sum comes to."""

    value: Annotated[int, Field(ge=20, le=30)]


def joined(parts: Iterable[Any]) -> Any:
    """The message that the parts of a stream make."""
    return reduce(operator.add, parts)


@pytest.fixture(scope="module")
def agent() -> Any:
    """`examples/langgraph/agent.py` as a module."""
    path = Path(__file__).resolve().parents[2] / "examples" / "langgraph" / "agent.py"
    spec = importlib.util.spec_from_file_location("langgraph_agent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("reference:greedy", {}),
        ("reference", {"strategy": "best_of_n(n=3)", "budget": {"tokens": 300}}),
    ],
)
def test_an_agent_solves_held_out_problems_through_calls(
    server: "ServerThread", agent: Any, model: str, body: dict[str, Any]
) -> None:
    rng = random.Random(11)
    chat = agent.chat_model(f"{server.url}/v1", model, **body)
    right = 0
    for _ in range(10):
        instance = toolcall.generate(rng, Split.HELD_OUT)
        answer, calls = agent.solve(chat, toolcall.sentence(instance))
        right += calls > 0 and answer == str(toolcall.call_result(instance.expression))
    assert right >= 8


def test_the_body_of_a_request_has_its_strategy_and_budget(server: "ServerThread", agent: Any) -> None:
    body = {"strategy": "best_of_n(n=3)", "budget": {"tokens": 90}}
    reply = agent.chat_model(f"{server.url}/v1", "reference", **body).invoke(SUM)
    (own,) = solved([SUM], "best_of_n(n=3)", Budget(tokens=90), seed=1)
    assert reply.content == own.conclusion
    assert reply.usage_metadata["output_tokens"] == own.usage.tokens <= 90
    assert reply.usage_metadata["input_tokens"] == own.usage.prompt_tokens


def test_an_answer_has_the_fields_of_a_model_of_pydantic(server: "ServerThread", agent: Any) -> None:
    chat = agent.chat_model(f"{server.url}/v1", "reference:greedy")
    assert chat.with_structured_output(Value).invoke(SUM) == Value(value=28)


def test_a_stream_ends_with_the_usage(server: "ServerThread", agent: Any) -> None:
    chat = agent.chat_model(f"{server.url}/v1", "reference:greedy")
    whole = chat.invoke(SUM)
    streamed = joined(chat.stream(SUM, stream_usage=True))
    assert (streamed.content, streamed.response_metadata["finish_reason"]) == (whole.content, "stop")
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_tools_that_are_bound_are_called_in_streams_too(server: "ServerThread", agent: Any) -> None:
    chat = agent.chat_model(f"{server.url}/v1", "reference:best_of_n(n=2)")
    bound = chat.bind_tools([agent.calculator], strict=True, parallel_tool_calls=False)
    for message in (bound.invoke(CALLING), joined(bound.stream(CALLING))):
        (call,) = message.tool_calls
        assert (call["name"], call["args"]) == ("calculator", {"expression": "37*45+12"})


def test_requests_side_by_side_get_their_own_answers(server: "ServerThread", agent: Any) -> None:
    chat = agent.chat_model(f"{server.url}/v1", "reference:greedy")
    replies = anyio.run(chat.abatch, [SUM, "13 + 7*3 - 5", "14 + 7*3 - 5"])
    assert [reply.content for reply in replies] == ["28", "29", "30"]
