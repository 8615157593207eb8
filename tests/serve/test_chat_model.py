"""A chat model of no task: conversations, text without an answer, and characters of several tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")

import openai
from support.serving import ServerThread, settings_for
from support.tiny import save_model

STRATEGIES = ("greedy", "best_of_n(n=3)", "chain", "self_consistency(n=2)")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of a server on a random model whose tokens are bytes."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    save_model(folder, "Llama")
    with ServerThread(settings_for(name="tiny"), str(folder)) as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)


def ask(client: openai.OpenAI, strategy: str, *turns: str, **options: Any) -> Any:
    roles = ("user", "assistant")
    messages: Any = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    usual: dict[str, Any] = {"max_tokens": 24, "seed": 3, "temperature": 0.8}
    return client.chat.completions.create(
        model=f"tiny:{strategy}",
        messages=messages,
        extra_body={"budget": {"tokens": 200}},
        **(usual | options),
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_without_an_answer_is_content_all_the_same(client: openai.OpenAI, strategy: str) -> None:
    choice = ask(client, strategy, "hi").choices[0]
    assert choice.message.content or choice.message.reasoning_content


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("stop", [None, "a", "�"])
def test_streams_and_logprobs_say_what_the_whole_answer_says(
    client: openai.OpenAI, strategy: str, stop: str | None
) -> None:
    whole = ask(client, strategy, "hi", stop=stop, logprobs=True).choices[0]
    assert whole.logprobs is not None
    told = "".join(token.token for token in whole.logprobs.content)
    assert told.startswith(whole.message.content)
    chunks = list(ask(client, strategy, "hi", stop=stop, stream=True))
    content = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert content == whole.message.content


def test_earlier_turns_are_part_of_the_prompt(client: openai.OpenAI) -> None:
    short, long = ask(client, "greedy", "hi"), ask(client, "greedy", "one", "two", "hi")
    assert long.usage.prompt_tokens > short.usage.prompt_tokens
