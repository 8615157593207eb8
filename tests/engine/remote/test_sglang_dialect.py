"""SGLang, as its interface is written down: what is found out about it, and that its text is the same."""

import json
from typing import Any

import anyio
import httpx2
import pytest
from branchwise.engine.protocol import EngineUsage, ExtendParams, ScoreParams
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.remote.probe import probe
from branchwise.engine.remote.servers import Servers
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.text.grammar import Constraint, json_grammar
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, StopRule, Until
from support.openai_server import LOGPROB, serving
from support.remote import END, FAST, PROMPT, TEXT, Purse, extending, run, script, scripted_info, text_of
from support.scripted import CharTokenizer, Script
from support.sglang_server import SglangServer

NEW = Dialect(most_alternatives=20, echo_tokens=1, restricts="logit_bias")
OLD = Dialect(most_alternatives=20, echo_tokens=1, restricts="logit_bias", ids_out=False)
each_version = pytest.mark.parametrize(
    ("options", "dialect"), [({}, NEW), ({"ids_out": False}, OLD)], ids=["with ids", "before"]
)


def sglang(script: Script, **options: Any) -> SglangServer:
    info = scripted_info(script)

    def write(ids: Any, seed: int) -> int:
        return ord((script(info.tokenizer.decode(ids), seed) or "$")[0])

    return SglangServer(write, info.tokenizer, END, **options)


@each_version
def test_it_is_found_out_although_it_refuses_no_field(options: dict[str, Any], dialect: Dialect):
    server = sglang(lambda text, seed: "a", **options)

    async def main() -> Dialect:
        async with serving(server), httpx2.AsyncClient() as http:
            return await probe(Servers(http, [server.url], FAST), server.url, "policy", CharTokenizer())

    assert anyio.run(main) == dialect
    assert dialect.constrains == ("ids_out" not in options)


@each_version
@pytest.mark.parametrize("lease", [1, 3, 100])
def test_steps_and_ends_are_those_of_any_server(options: dict[str, Any], dialect: Dialect, lease: int):
    server, purse, usage = sglang(script, **options), Purse(), EngineUsage()

    async def body(engine: RemoteEngine) -> tuple[Any, ...]:
        seq = engine.open(PROMPT, seed=1, usage=usage)
        first = await engine.extend(seq, extending(Until.STEP), purse)
        second = await engine.extend(seq, extending(), purse)
        scores = await engine.score(seq, ScoreParams(logprobs_from=2), purse)
        return first, second, scores

    first, second, scores = run(body, server, dialect=dialect, lease_tokens=lease)
    assert (text_of(first.tokens), first.stop) == ("ab;", Stop.MARK)
    assert (text_of(second.tokens), second.stop) == ("cd;ef|42$", Stop.EOS)
    assert (*first.logprobs, *second.logprobs) == scores.logprobs == (LOGPROB,) * len(TEXT)
    assert purse.paid == len(TEXT)
    assert "cached_tokens" in usage.unknown


def test_cached_tokens_are_known_with_the_cache_report():
    server, usage = sglang(script, cache_report=True), EngineUsage()

    async def body(engine: RemoteEngine) -> None:
        for _ in range(2):
            seq = engine.open(PROMPT, seed=1, usage=usage)
            await engine.extend(seq, extending(max_tokens=2), Purse())

    run(body, server, dialect=NEW)
    assert "cached_tokens" not in usage.unknown
    assert usage.cached_tokens == len(PROMPT) - 1


def test_a_stop_that_ends_nothing_here_is_no_end_of_the_text():
    """A blank line in a code block: the server stops there, and names it as it names its own end."""
    code = "```\na\n\nb\n```\n\nc$"
    profile = ModelProfile(final_answer="eos", stop_ids=END)

    def writes(text: str, seed: int) -> str:
        return code[len(text) - len(PROMPT) :]

    server = sglang(writes)

    async def body(engine: RemoteEngine) -> Any:
        seq = engine.open(PROMPT, seed=1)
        return await engine.extend(seq, extending(Until.STEP), Purse())

    extension = run(body, server, dialect=NEW, script=writes, profile=profile, lease_tokens=50)
    assert (text_of(extension.tokens), extension.stop) == (code[:-2], Stop.MARK)


def test_choices_and_schemas_are_kept_to_by_its_bias():
    pytest.importorskip("llguidance")
    server = sglang(lambda text, seed: "z")
    schema = {"type": "array", "items": {"enum": ["red", 7]}, "minItems": 2, "maxItems": 3}
    grammar = json_grammar(schema, CharTokenizer(), END, CharTokenizer.vocab_size)

    async def body(engine: RemoteEngine) -> Any:
        chosen = SamplingParams(temperature=0.0, allowed_tokens=(ord("y"), ord("n")))
        one = await engine.extend(
            engine.open(PROMPT, seed=1), extending(max_tokens=1, sampling=chosen), Purse()
        )
        constraint = Constraint(grammar, len(PROMPT))
        params = ExtendParams(
            sampling=GREEDY, stop=StopRule(eos_ids=END), max_tokens=300, constraint=constraint
        )
        return one, await engine.extend(engine.open(PROMPT, seed=1), params, Purse())

    one, answer = run(body, server, dialect=NEW, lease_tokens=5)
    assert text_of(one.tokens) in ("y", "n")
    assert set(json.loads(text_of(answer.tokens).removesuffix("$"))) <= {"red", 7}
    assert not any("allowed_token_ids" in request for request in server.requests)
