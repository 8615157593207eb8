"""The older endpoint: the model goes on from a raw prompt, whatever its chat template is."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")

import openai
from branchwise import Budget, Reasoner
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.stop import Until
from branchwise.evals.reference.problems import ArithmeticTask
from support.serving import settings_for
from support.tiny import save_model

if TYPE_CHECKING:
    from support.serving import ServerThread

PROMPT = "Once upon a time"
IDS_OF_A_SUM = "12 + 7*3 - 5"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ServerThread]":
    """A random model whose tokens are bytes, and whose template speaks of thinking."""
    from support.serving import ServerThread

    folder: Path = tmp_path_factory.mktemp("tiny")
    save_model(folder, "Llama")
    with ServerThread(settings_for(name="tiny"), str(folder)) as server:
        yield server


@pytest.fixture
def client(tiny: "ServerThread") -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="x", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, prompt: Any = PROMPT, strategy: str = "greedy", **options: Any) -> Any:
    usual: dict[str, Any] = {"max_tokens": 20, "seed": 3}
    name = f"tiny:{strategy}" if strategy else "tiny"
    return client.completions.create(model=name, prompt=prompt, **(usual | options))


def test_the_text_goes_on_from_the_prompt_alone(tiny: "ServerThread", client: openai.OpenAI) -> None:
    reply = ask(client)
    assert reply.usage.prompt_tokens == len(PROMPT)
    assert reply.usage.completion_tokens == 20
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[0].text == written_by(tiny, [ord(c) for c in PROMPT])


def written_by(server: "ServerThread", text: list[int]) -> str:
    """The most likely 20 tokens behind the bytes, by the back end alone."""
    import anyio

    reasoner = server.reasoner
    ids = reasoner.models["policy"].tokenizer.encode(bytes(text).decode())

    async def run() -> str:
        async with (
            Reasoner.open(reasoner.models["policy"].source, threads=1) as own,
            own.session(ids, Budget(tokens=100), sampling=SamplingParams(temperature=0.0)) as root,
        ):
            return (await root.extend(Until.END, max_tokens=20)).text

    return anyio.run(run)


def test_token_ids_and_their_text_are_one_prompt(tiny: "ServerThread", client: openai.OpenAI) -> None:
    ids = tiny.reasoner.models["policy"].tokenizer.encode(PROMPT)
    text = ask(client).choices[0].text
    assert ask(client, ids).choices[0].text == text
    both = ask(client, [ids, ids[:5]], n=2)
    assert [choice.text for choice in both.choices[:2]] == [text, text]
    assert both.choices[2].text == ask(client, PROMPT[:5]).choices[0].text
    assert len(both.choices) == 4


@pytest.mark.parametrize("strategy", ["best_of_n(n=3)", "self_consistency(n=3)", "chain", "best_of_n(n=1)"])
def test_strategies_go_on_from_raw_prompts(client: openai.OpenAI, strategy: str) -> None:
    whole = ask(client, strategy=strategy).choices[0]
    chunks = list(ask(client, strategy=strategy, stream=True))
    assert whole.text
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.text


def test_a_stop_string_ends_the_search_and_not_only_the_text(client: openai.OpenAI) -> None:
    text = ask(client).choices[0].text
    stop = next(c for place, c in enumerate(text) if c.isascii() and place > 2)
    reply = ask(client, stop=[stop, "never"])
    before = text.index(stop)
    assert reply.choices[0].text == text[:before]
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens < 20
    streamed = "".join(c.text for chunk in ask(client, stop=stop, stream=True) for c in chunk.choices)
    assert streamed == text[:before]


def test_an_echo_stands_before_the_text(client: openai.OpenAI) -> None:
    text = ask(client).choices[0].text
    assert ask(client, echo=True).choices[0].text == PROMPT + text
    chunks = list(ask(client, echo=True, stream=True))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == PROMPT + text


@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_an_echo_with_logprobs_scores_the_prompt(
    tiny: "ServerThread", client: openai.OpenAI, max_tokens: int
) -> None:
    reply = ask(client, [PROMPT, "x"], echo=True, logprobs=2, max_tokens=max_tokens)
    found, expected = reply.choices[0].logprobs, likelihoods(tiny, PROMPT)
    count = len(PROMPT)
    assert "".join(found.tokens[:count]) == PROMPT
    assert found.token_logprobs[0] is None
    assert found.top_logprobs[0] is None
    assert found.token_logprobs[1:count] == pytest.approx([row[ord_] for row, ord_ in expected], abs=1e-3)
    leading = [max(top.values()) for top in found.top_logprobs[1:count]]
    assert leading == pytest.approx([float(row.max()) for row, _ in expected], abs=1e-3)
    assert len(found.tokens) <= count + max_tokens
    assert max_tokens or reply.choices[0].text == PROMPT
    assert max_tokens or reply.usage.completion_tokens == 0
    assert reply.choices[0].finish_reason == "length"
    assert reply.choices[1].logprobs.token_logprobs[0] is None


def likelihoods(server: "ServerThread", text: str) -> list[tuple[Any, int]]:
    """transformers' log-probabilities of each place of the text but the first, and the id that stands
    there."""
    import torch
    from transformers import AutoModelForCausalLM

    info = server.reasoner.models["policy"]
    ids = info.tokenizer.encode(text)
    model = AutoModelForCausalLM.from_pretrained(info.source)
    with torch.no_grad():
        rows = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [(row.numpy(), token) for row, token in zip(rows, ids[1:], strict=False)]


@pytest.mark.parametrize("token", [256, 260, 200])
def test_each_token_counts_where_the_prompt_is_scored(client: openai.OpenAI, token: int) -> None:
    """The end's, one of special text, half of a character."""
    options: Any = {"echo": True, "logprobs": 1, "max_tokens": 1, "logit_bias": {str(token): 100}}
    choice = ask(client, **options).choices[0]
    assert choice.text.startswith(PROMPT)
    assert len(choice.logprobs.tokens) == len(PROMPT) + 1
    (chunk,) = [c.choices[0] for c in ask(client, stream=True, **options) if c.choices[0].logprobs]
    assert chunk.logprobs.tokens == choice.logprobs.tokens


def test_a_budget_that_does_not_cover_the_prompt_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="does not cover"):
        ask(client, echo=True, logprobs=1, extra_body={"budget": {"flops": 1000}})


def test_best_of_is_the_likeliest_of_so_many(client: openai.OpenAI) -> None:
    report = ask(client, strategy="", best_of=3).choices[0].search
    assert (report["strategy"]["n"], report["candidates"]) == (3, 3)
    assert report["strategy"]["select"] == "mean_logprob"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"suffix": "the end"}, "suffix"),
        ({"prompt": ""}, "empty"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "at least one"),
        ({"prompt": [1, "a"]}, "prompt: give"),
        ({"prompt": [[1], "a"]}, "prompt: give"),
        ({"prompt": [300]}, "from 0 to 299"),
        ({"prompt": [-1]}, "from 0 to 299"),
        ({"prompt": ["a"] * 65}, "at most 64"),
        ({"prompt": "a" * 300}, "context"),
        ({"best_of": 2}, "one of the two"),
        ({"max_tokens": 0}, "give echo and logprobs"),
        ({"max_tokens": 0, "echo": True}, "give echo and logprobs"),
        ({"best_of": 2, "n": 2, "strategy": ""}, "best_of: with n=1"),
        ({"logprobs": 6}, "logprobs"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_a_bad_request(
    client: openai.OpenAI, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **options)
    assert said in caught.value.message
    assert "/" not in caught.value.message, "a folder of the server"


def test_a_model_of_tasks_reads_their_sentences_as_text_and_anything_as_ids(server: "ServerThread") -> None:
    from branchwise.engine.text.tokenizer import Message

    info = server.reasoner.models["policy"]
    task = ArithmeticTask.recognise(IDS_OF_A_SUM)
    assert task is not None
    ids = info.tokenizer.chat([Message("user", task.prompt())])
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        options: Any = {"model": "reference:greedy", "seed": 1}
        sentence = client.completions.create(prompt=IDS_OF_A_SUM, **options).choices[0]
        raw = client.completions.create(prompt=ids, **options).choices[0]
        assert sentence.text == raw.text == "28"
        with pytest.raises(openai.BadRequestError, match="cannot read"):
            client.completions.create(prompt=PROMPT, **options)
        with pytest.raises(openai.BadRequestError, match="give token ids"):
            client.completions.create(prompt=IDS_OF_A_SUM, echo=True, logprobs=1, **options)
        scored = client.completions.create(prompt=ids, echo=True, logprobs=1, max_tokens=0, **options)
        assert len(scored.choices[0].logprobs.tokens) == len(ids)
