"""What a model says before it calls a tool is content beside the call."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("httpx", reason="needs httpx")

from branchwise.reasoning.tools.calculator import CALCULATOR
from support.scripted import PLAIN, THINKER
from support.searching import scripted
from support.serving import chat_once

CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "6*7"}}</tool_call>'
STRATEGIES = ("greedy", "best_of_n(n=3, select=majority)")


def ask(text: str, *, thinks: bool = False, **options: Any) -> Any:
    """What the server answers when the model writes `text`, whole or from its stream."""
    engine = scripted(lambda prompt, seed: text, profile=THINKER if thinks else PLAIN)
    return chat_once(engine, tools=[CALCULATOR.as_openai()], **options)


def joined(chunks: Sequence[Any]) -> dict[str, Any]:
    """The choice that the chunks of a stream make."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    names = ("content", "reasoning_content")
    return {
        **{name: "".join(delta.get(name) or "" for delta in deltas) for name in names},
        "tool_calls": [call for delta in deltas for call in delta.get("tool_calls", ())],
        "finish_reason": chunks[-1]["choices"][0]["finish_reason"],
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("thinks", [False, True])
def test_the_text_before_a_call_is_content(strategy: str, thinks: bool) -> None:
    before = "Hm;|" if thinks else ""
    whole = ask(f"{before}Let me see: {CALL}", thinks=thinks, strategy=strategy)["choices"][0]
    streamed = joined(ask(f"{before}Let me see: {CALL}", thinks=thinks, strategy=strategy, stream=True))
    for found in (whole["message"] | {"finish_reason": whole["finish_reason"]}, streamed):
        assert found["content"] == "Let me see: "
        assert (found["reasoning_content"] or "") == ("Hm;" if thinks else "")
        (call,) = found["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"expression": "6*7"}
        assert found["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_before_a_call_ends_the_text_and_leaves_no_call(stream: bool) -> None:
    reply = ask(f"Let me see: {CALL}", strategy="greedy", stop=" see", stream=stream)
    found = joined(reply) if stream else reply["choices"][0]["message"] | reply["choices"][0]
    assert (found["content"], found["tool_calls"], found["finish_reason"]) == (
        "Let me",
        [] if stream else None,
        "stop",
    )


def test_what_stands_before_a_failed_call_is_not_sent_before_it_is_known_to_stay() -> None:
    broken = '<tool_call>{"name": "nothing"}</tool_call>'
    whole = ask(f"Let me see: {broken}", strategy="greedy")["choices"][0]
    streamed = joined(ask(f"Let me see: {broken}", strategy="greedy", stream=True))
    assert "no tool" not in whole["message"]["content"]
    assert streamed["content"] == whole["message"]["content"]
    assert streamed["finish_reason"] == whole["finish_reason"]
