"""The real openai client as an agent: calls come back, results go in, and the answer is theirs."""

import importlib.util
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from branchwise.evals.reference.tasks import toolcall
from branchwise.evals.reference.tasks.trace import Split
from branchwise.reasoning.tools.calculator import CALCULATOR

openai = pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")

if TYPE_CHECKING:
    from support.serving import ServerThread

TOOLS: Any = [CALCULATOR.as_openai()]
PROBLEM: Any = {"role": "user", "content": "Use the calculator: 37*45 + 12"}


@pytest.fixture
def client(server: "ServerThread") -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        yield client


def ask(client: Any, messages: list[Any], model: str = "reference:best_of_n(n=3)", **options: Any) -> Any:
    usual: dict[str, Any] = {"model": model, "messages": messages, "tools": TOOLS, "seed": 1}
    return client.chat.completions.create(**(usual | options))


def agent() -> Any:
    """`examples/agent/agent.py` as a module."""
    path = Path(__file__).resolve().parents[2] / "examples" / "agent" / "agent.py"
    spec = importlib.util.spec_from_file_location("agent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_call_comes_back_as_the_api_has_it(client: Any) -> None:
    choice = ask(client, [PROBLEM]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    (call,) = choice.message.tool_calls
    assert call.function.name == "calculator"
    assert json.loads(call.function.arguments) == {"expression": "37*45+12"}
    assert choice.search["answer"] == 'calculator({"expression":"37*45+12"})'


@pytest.mark.parametrize("model", ["reference:greedy", "reference:best_of_n(n=2)"])
def test_a_streamed_call_comes_in_one_chunk(client: Any, model: str) -> None:
    chunks = list(ask(client, [PROBLEM], model, stream=True))
    deltas = [choice for chunk in chunks for choice in chunk.choices]
    (call,) = [call for choice in deltas for call in choice.delta.tool_calls or []]
    assert (call.index, call.function.name) == (0, "calculator")
    assert deltas[-1].finish_reason == "tool_calls"
    assert not any(choice.delta.content for choice in deltas)


def test_the_model_goes_on_from_a_result(client: Any) -> None:
    called = ask(client, [PROBLEM]).choices[0].message
    given = {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "1677"}
    choice = ask(client, [PROBLEM, called, given]).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("1677", "stop")


def test_without_tools_no_call_ends_the_answer(client: Any) -> None:
    choice = ask(client, [PROBLEM], tool_choice="none").choices[0]
    assert choice.finish_reason != "tool_calls"
    assert choice.message.tool_calls is None


@pytest.mark.parametrize("model", ["reference:greedy", "reference:best_of_n(n=3)"])
def test_an_agent_solves_held_out_problems_through_calls(client: Any, model: str) -> None:
    rng, solve = random.Random(11), agent().solve
    right = 0
    for _ in range(10):
        instance = toolcall.generate(rng, Split.HELD_OUT)
        answer, calls = solve(client, model, toolcall.sentence(instance))
        right += calls > 0 and answer == str(toolcall.call_result(instance.expression))
    assert right >= 8


def test_the_example_says_in_one_line_that_no_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["agent.py", "1+1", "--url", "http://127.0.0.1:1/v1"])
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(SystemExit, match=r"^http://127\.0\.0\.1:1/v1: Connection error\.$"):
        agent().main()
