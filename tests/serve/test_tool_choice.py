"""Calls that the client asks for come, in the model's own form, whatever it would rather write."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("llguidance", reason="needs branchwise[structured]")

import jsonschema
import openai
from support.serving import ServerThread, settings_for
from support.templates import HERMES, LLAMA, WITHOUT_TOOLS
from support.tiny import save_model, save_tokenizer

ADD: Any = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/digit"}, "b": {"enum": ["one", "two"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "add", "parameters": ADD}},
    {"type": "function", "function": {"name": "now"}},
]
PARAMETERS = {"add": ADD, "now": {"type": "object", "maxProperties": 0}}
NOW: Any = {"type": "function", "function": {"name": "now"}}
ONLY_ADD: Any = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "add"}}]},
}
TEMPLATES = {"hermes": HERMES, "llama": LLAMA, "told in words": WITHOUT_TOOLS}


@pytest.fixture(scope="module", params=TEMPLATES)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    """A client of a server on a random model with this template; it would never call by itself."""
    folder: Path = tmp_path_factory.mktemp("model")
    save_model(folder, "Llama", max_position_embeddings=1024)
    extra = ("<tool_call>", "</tool_call>") if request.param == "hermes" else ()
    save_tokenizer(folder, chat_template=TEMPLATES[request.param], extra=extra)
    with ServerThread(settings_for(name="tiny"), str(folder)) as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


def ask(client: openai.OpenAI, tool_choice: Any, strategy: str = "greedy", **options: Any) -> Any:
    usual: dict[str, Any] = {"tools": TOOLS, "seed": 3, "parallel_tool_calls": False}
    return client.chat.completions.create(
        model=f"tiny:{strategy}",
        messages=[{"role": "user", "content": "hi"}],
        tool_choice=tool_choice,
        extra_body={"budget": {"tokens": 900}},
        **(usual | options),
    )


def checked(calls: Any) -> list[str]:
    """The names of the calls, whose arguments are of their schemas."""
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])
    return [call.function.name for call in calls]


@pytest.mark.parametrize("strategy", ["greedy", "best_of_n(n=2, temperature=0.9)", "chain(waits=0)"])
def test_a_required_call_comes(client: openai.OpenAI, strategy: str) -> None:
    choice = ask(client, "required", strategy).choices[0]
    assert len(checked(choice.message.tool_calls)) == 1
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == ""


@pytest.mark.parametrize(("wanted", "name"), [(NOW, "now"), (ONLY_ADD, "add")])
def test_a_named_function_is_the_one_that_is_called(client: openai.OpenAI, wanted: Any, name: str) -> None:
    assert checked(ask(client, wanted).choices[0].message.tool_calls) == [name]


def test_a_required_call_is_streamed(client: openai.OpenAI) -> None:
    chunks = list(ask(client, NOW, "best_of_n(n=2)", stream=True))
    deltas = [choice for chunk in chunks for choice in chunk.choices]
    calls = [call for choice in deltas for call in choice.delta.tool_calls or []]
    assert checked(calls) == ["now"]
    assert not any(choice.delta.content for choice in deltas)
    assert deltas[-1].finish_reason == "tool_calls"


def test_a_call_that_a_limit_cut_is_neither_call_nor_content(client: openai.OpenAI) -> None:
    choice = ask(client, "required", max_tokens=5).choices[0]
    assert (choice.message.tool_calls, choice.message.content) == (None, "")
    assert choice.finish_reason == "length"
    assert choice.search["answer"] is None


def test_several_calls_may_come_where_the_form_has_them(client: openai.OpenAI) -> None:
    message = ask(client, NOW, parallel_tool_calls=True, temperature=0.9).choices[0].message
    assert set(checked(message.tool_calls or [])) <= {"now"}
