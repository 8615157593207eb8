"""A search over a real vLLM that serves the shipped policy. The last test kills the server."""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import anyio
import jsonschema
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.protocol import EngineUsage, ExtendParams, Extension, ScoreParams, Unlimited
from branchwise.engine.remote.address import parse_address
from branchwise.engine.remote.opening import open_remote
from branchwise.engine.remote.served_tokenizer import ServedTokenizer
from branchwise.engine.sampling.params import GREEDY
from branchwise.engine.text.grammar import Constraint, json_grammar
from branchwise.engine.text.stop import StopRule
from branchwise.engine.text.tokenizer import HfTokenizer, Message, Tokenizer
from branchwise.evals.reference.folders import MODELS_FOLDER
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Event, Offered
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from support.vllm_server import VllmServer, vllm_serving

pytestmark = pytest.mark.slow

POLICY = MODELS_FOLDER / "policy"
PROBLEMS = (
    "Use 3, 7 and 12 to make 43",
    "Use 2, 5 and 9 to make 19",
    "Use 4, 6 and 8 to make 20",
    "12 + 7*3 - 5",
    "9*4 - 17 + 2",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with vllm_serving(POLICY, tmp_path_factory.mktemp("vllm") / "log") as running:
        yield running


def opened(model: str, body: Callable[[Reasoner], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Reasoner.open(model, prm="reference", device="cpu", threads=1) as reasoner:
            with anyio.fail_after(240):
                return await body(reasoner)

    return anyio.run(main)


def remotely(server: VllmServer, body: Callable[[Reasoner], Awaitable[Any]]) -> Any:
    return opened(f"remote:{server.url}#policy", body)


def test_greedy_text_is_that_of_the_local_engine(server: VllmServer):
    async def body(reasoner: Reasoner) -> list[Solution]:
        return [await reasoner.solve(problem, "greedy", seed=1) for problem in PROBLEMS]

    for here, there in zip(opened("reference", body), remotely(server, body), strict=True):
        assert (here.text, here.answer, here.verified) == (there.text, there.answer, there.verified)
        assert (here.usage.tokens, here.usage.flops) == (there.usage.tokens, there.usage.flops)


@pytest.mark.parametrize("strategy", ["best_of_n(n=8)", "beam(n=8,width=4)"])
def test_strategies_run_end_to_end(server: VllmServer, strategy: str):
    async def body(reasoner: Reasoner) -> list[Solution]:
        budget = Budget(tokens=1000)
        return [await reasoner.solve(problem, strategy, budget, seed=1) for problem in PROBLEMS]

    solutions = remotely(server, body)
    assert all(solution.error is None and solution.usage.tokens <= 1000 for solution in solutions)
    assert sum(solution.answer is not None for solution in solutions) >= 4
    assert any(solution.verified for solution in solutions)
    assert sum(solution.usage.engine["cached_tokens"] for solution in solutions) > 0


def test_one_seed_is_one_text(server: VllmServer):
    async def body(reasoner: Reasoner) -> list[str]:
        seeds = (5, 5, 6, 7, 8, 9)
        return [(await reasoner.solve(PROBLEMS[1], "best_of_n(n=1)", seed=seed)).text for seed in seeds]

    first, again, *others = remotely(server, body)
    assert first == again
    assert len({first, *others}) > 1


def test_scores_are_those_of_the_local_engine(server: VllmServer):
    async def both(reasoner: Reasoner) -> tuple[tuple[float, ...], tuple[float, ...]]:
        tokenizer = reasoner.models["policy"].tokenizer
        tokens = tokenizer.encode("<bos>12+7*3-5=12-5=7>7+7*3;")
        async with await Engine.open_models({"policy": POLICY}, threads=1) as local:
            scores = []
            for backend in (local, reasoner.backend):
                seq = backend.open(tokens, seed=1)
                scores.append((await backend.score(seq, ScoreParams(logprobs_from=1), Unlimited())).logprobs)
                backend.release(seq)
            return scores[0], scores[1]

    here, there = remotely(server, both)
    assert len(there) > 10
    assert there == pytest.approx(here, abs=1e-3)


def test_its_tokenizer_is_that_of_the_folder(server: VllmServer):
    here, there = HfTokenizer.open(POLICY), ServedTokenizer.open(server.url, "policy", {})
    for text in ("12+7*3-5;", "<bos>1</think>2<eos>"):
        assert there.encode(text) == here.encode(text)
        assert there.decode(here.encode(text)) == text
    assert there.chat([Message("user", "1+1")]) == here.chat([Message("user", "1+1")])


def test_the_cache_is_shared_within_a_namespace_only(server: VllmServer):
    async def body(reasoner: Reasoner) -> list[int]:
        tokenizer = reasoner.models["policy"].tokenizer
        tokens = tokenizer.encode("<bos>" + "12+7*3-5;" * 8)
        params = ExtendParams(sampling=GREEDY, stop=StopRule(), max_tokens=1)
        found = []
        for namespace in ("one", "one", "two", "two"):
            usage = EngineUsage()
            seq = reasoner.backend.open(tokens, seed=1, namespace=namespace, usage=usage)
            await reasoner.backend.extend(seq, params, Unlimited())
            reasoner.backend.release(seq)
            found.append(usage.cached_tokens)
        return found

    first, again, other, other_again = remotely(server, body)
    assert (first, other) == (0, 0)
    assert again == other_again > 0


SCHEMAS = (
    {"type": "integer"},
    {"type": "array", "items": {"enum": ["red", 7]}, "minItems": 2, "maxItems": 3},
    {
        "type": "object",
        "properties": {"sum": {"type": "integer", "maximum": 99}, "sure": {"type": "boolean"}},
        "required": ["sum", "sure"],
        "additionalProperties": False,
    },
)


def test_a_text_fits_its_schema_and_does_not_depend_on_where_its_requests_end(server: VllmServer):
    """One request is masked by the server's own grammar; of several, the later ones are checked here."""

    async def written(lease_tokens: int) -> list[Extension]:
        address = parse_address(f"remote:{server.url}#policy")
        remote = await open_remote({"policy": address}, lambda name: POLICY, lease_tokens=lease_tokens)
        async with remote:
            assert remote.capabilities.constrains
            info = remote.models["policy"]
            tokens = info.tokenizer.encode("<bos>12+7*3-5=12-5=7>7+7*3;</think>")
            stop, found = StopRule(eos_ids=info.profile.stop_ids), []
            for schema in SCHEMAS:
                grammar = json_grammar(schema, info.tokenizer, info.profile.stop_ids, info.vocab_size)
                constraint = Constraint(grammar, len(tokens))
                params = ExtendParams(sampling=GREEDY, stop=stop, max_tokens=90, constraint=constraint)
                found.append(await remote.extend(remote.open(tokens, seed=1), params, Unlimited()))
                jsonschema.validate(json.loads(_text(info.tokenizer, found[-1].tokens)), schema)
            return found

    whole, *cut = [anyio.run(written, lease_tokens) for lease_tokens in (90, 5, 1)]
    for there in cut:
        assert [one.tokens for one in there] == [one.tokens for one in whole]


def _text(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens).removesuffix("<eos>")


def test_answers_of_a_search_are_of_its_schema(server: VllmServer):
    async def body(reasoner: Reasoner) -> Solution:
        budget, strategy = Budget(tokens=600), "best_of_n(n=4,select=majority)"
        return await reasoner.solve("12 + 7*3 - 5", strategy, budget, seed=1, schema={"type": "integer"})

    solution = remotely(server, body)
    assert solution.error is None
    assert isinstance(json.loads(solution.answer), int)
    assert solution.usage.tokens <= 600


def test_a_server_killed_in_the_middle_gives_the_best_so_far_and_says_why(server: VllmServer):
    async def body(reasoner: Reasoner) -> tuple[Solution, list[str]]:
        offered: list[str] = []

        def watch(event: Event) -> None:
            if isinstance(event, Offered) and event.incumbent_answer is not None and not offered:
                offered.append(event.incumbent_answer)
                server.kill()

        budget = Budget(tokens=16_000)
        strategy = "best_of_n(n=64,select=majority)"
        return await reasoner.solve(PROBLEMS[3], strategy, budget, seed=3, on_event=watch), offered

    solution, offered = remotely(server, body)
    assert offered
    assert solution.answer is not None
    assert solution.reason is Reason.FAILED
    assert server.url in (solution.error or "")
