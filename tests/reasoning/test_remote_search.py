"""A search on servers through `Reasoner.open`: the shipped policy behind an OpenAI-compatible server."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import torch
from branchwise.engine.errors import CapabilityError, ModelLoadError, UsageError
from branchwise.engine.models.open import open_model
from branchwise.evals.reference.folders import MODELS_FOLDER, load_decoder
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Offered, Wrote
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.reasoning.tools.calculator import CALCULATOR
from branchwise.reasoning.tools.choice import AUTO, ToolChoice
from support.openai_server import Fault, StandInServer, serving
from support.scripted import CharTokenizer

POLICY = MODELS_FOLDER / "policy"
PROBLEMS = ("Use 3, 7 and 12 to make 43", "12 + 7*3 - 5", "Use 2, 5 and 9 to make 19")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@cache
def _decoder() -> Any:
    return load_decoder(POLICY)


def _write(ids: Sequence[int], seed: int) -> int:
    """The likeliest token; with a seed, one that is drawn."""
    with torch.inference_mode():
        logits = _decoder()(torch.tensor([list(ids)]))[0, -1]
    if not seed:
        return int(logits.argmax())
    generator = torch.Generator().manual_seed(seed)
    return int(torch.multinomial(logits.softmax(-1), 1, generator=generator))


def policy_server(**options: Any) -> StandInServer:
    info = open_model(POLICY).info
    defaults: dict[str, Any] = {"root": str(POLICY), "context": 512}
    return StandInServer(_write, info.tokenizer, info.profile.stop_ids, **(defaults | options))


def on_servers(
    body: Callable[[Reasoner], Awaitable[Any]], *servers: StandInServer, query: str = "", **options: Any
) -> Any:
    async def main() -> Any:
        async with serving(*servers):
            urls = ",".join(server.url for server in servers)
            async with Reasoner.open(f"remote:{urls}{query}#policy", device="cpu", **options) as reasoner:
                with anyio.fail_after(60):
                    return await body(reasoner)

    return anyio.run(main)


def locally(strategy: str) -> list[Solution]:
    async def main() -> list[Solution]:
        async with Reasoner.open("reference", device="cpu", threads=1) as reasoner:
            return [await reasoner.solve(problem, strategy, seed=1) for problem in PROBLEMS]

    return anyio.run(main)


@pytest.mark.parametrize("plain", [False, True])
def test_greedy_text_and_work_are_those_of_the_local_engine(plain: bool):
    """On a server with token ids, and on one that takes and tells text only."""
    server = policy_server(ids=not plain, extensions=not plain, most_logprobs=5 if plain else 20)

    async def body(reasoner: Reasoner) -> list[Solution]:
        return [await reasoner.solve(problem, "greedy", seed=1) for problem in PROBLEMS]

    remote = on_servers(body, server, prm="reference")
    for here, there in zip(locally("greedy"), remote, strict=True):
        assert (here.text, here.answer, here.verified) == (there.text, there.answer, there.verified)
        assert here.usage.tokens == there.usage.tokens
        assert plain or here.usage.flops == there.usage.flops
        assert any("as text" in note for note in there.notes) == plain


def test_beam_runs_on_a_server_beside_a_reward_model_of_this_machine():
    server = policy_server()

    async def body(reasoner: Reasoner) -> Solution:
        assert reasoner.memory_plan is not None
        assert reasoner.source.tasks_only
        assert not reasoner.reproducible
        return await reasoner.solve(PROBLEMS[0], "beam(n=4,width=2)", Budget(tokens=600), seed=1)

    solution = on_servers(body, server, prm="reference")
    assert solution.answer is not None
    assert solution.usage.engine["score_tokens"] > 0
    assert solution.usage.engine["cached_tokens"] > 0
    assert solution.model == "remote:policy"


def test_a_server_killed_in_the_middle_gives_the_best_so_far_and_says_why():
    server = policy_server()
    offered: list[str] = []

    async def body(reasoner: Reasoner) -> Solution:
        def watch(event: object) -> None:
            if isinstance(event, Offered) and event.incumbent_answer is not None and not offered:
                offered.append(event.incumbent_answer)
                server.kill()

        return await reasoner.solve(
            PROBLEMS[1], "best_of_n(n=8,select=majority)", Budget(tokens=2000), seed=3, on_event=watch
        )

    solution = on_servers(body, server)
    assert solution.answer in {candidate.answer for candidate in solution.candidates}
    assert offered
    assert solution.reason is Reason.FAILED
    assert server.url in (solution.error or "")
    assert "given up after" in (solution.error or "")
    assert "\n" not in (solution.error or "")


def test_a_fault_that_passes_is_not_seen():
    one, other = policy_server(), policy_server()

    async def body(reasoner: Reasoner) -> Solution:
        for server in (one, other):
            server.faults.extend([Fault(after=3), Fault(status=503)])
        return await reasoner.solve(PROBLEMS[1], "greedy", seed=1)

    solution = on_servers(body, one, other)
    assert solution.error is None
    assert solution.text == locally("greedy")[1].text


def test_the_tokenizer_can_be_named_where_the_server_s_folder_is_not_here():
    server = policy_server(root="/nowhere/else")

    async def body(reasoner: Reasoner) -> Solution:
        return await reasoner.solve(PROBLEMS[1], "greedy", seed=1)

    with pytest.raises(ModelLoadError, match="tokenizer=NAME"):
        on_servers(body, server)
    solution = on_servers(body, server, query="?tokenizer=reference")
    assert solution.text == locally("greedy")[1].text


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("remote:{url}#other", {}, "serves policy; 'other' is not among them"),
        ("remote:http://127.0.0.1:9/v1#policy", {}, "no server answers"),
        ("reference", {"prm": "remote:{url}#policy"}, "a server gives no rewards"),
        ("remote:{url}#policy", {"adapter": "folder"}, "name the adapter that the server has"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_line(name: str, options: dict[str, str], said: str):
    server = policy_server()

    async def main() -> None:
        async with serving(server):
            given: dict[str, Any] = {key: value.format(url=server.url) for key, value in options.items()}
            async with Reasoner.open(name.format(url=server.url), device="cpu", **given):
                pass

    with pytest.raises(UsageError) as caught:
        anyio.run(main)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_is_not_the_server_s_is_refused():
    server = StandInServer(
        _write, CharTokenizer(), frozenset({2}), root=str(POLICY), context=512, tokenizes=True
    )

    async def body(reasoner: Reasoner) -> None:
        raise AssertionError

    with pytest.raises(ModelLoadError, match="other tokens than the tokenizer"):
        on_servers(body, server)


def test_a_model_of_unknown_shape_has_no_work_to_budget(tmp_path: Path):
    """Its tokens are counted, its flops are not; a budget of them is refused."""
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "branchwise.json"):
        (tmp_path / name).write_bytes((POLICY / name).read_bytes())
    (tmp_path / "config.json").write_text('{"architectures": ["OtherForCausalLM"], "eos_token_id": 2}')
    server = policy_server(root=str(tmp_path))

    async def body(reasoner: Reasoner) -> Solution:
        with pytest.raises(CapabilityError, match="budget flops=7"):
            await reasoner.solve("<bos>1+1=", "greedy", Budget(flops=7))
        return await reasoner.solve("<bos>1+1=", "greedy", Budget(tokens=7), seed=1)

    solution = on_servers(body, server)
    assert 0 < solution.usage.tokens <= 7
    assert any("is not known" in note for note in solution.notes)


def test_a_stream_tells_the_text_as_the_server_writes_it():
    server = policy_server()

    async def body(reasoner: Reasoner) -> tuple[list[Wrote], Solution]:
        async with reasoner.stream(PROBLEMS[1], "greedy", seed=1, deltas=True) as stream:
            written = [event async for event in stream if isinstance(event, Wrote)]
        return written, stream.solution

    written, solution = on_servers(body, server)
    assert len(written) > 3
    assert {event.phase for event in written} == {"thinking", "answer"}
    assert "".join(event.text for event in written).startswith(solution.text.removesuffix("<eos>")[:20])


def test_a_conversation_on_a_server_keeps_no_kv_and_works():
    server = policy_server()

    async def body(reasoner: Reasoner) -> list[Solution]:
        async with reasoner.conversation() as conversation:
            return [await conversation.ask(problem, "greedy", seed=1) for problem in PROBLEMS[1:2]]

    (solution,) = on_servers(body, server)
    assert solution.text == locally("greedy")[1].text


def test_a_required_call_is_held_to_here_since_no_server_knows_its_grammar():
    """The model calls for the first problem by itself, and never for the second."""
    pytest.importorskip("llguidance", reason="needs branchwise[structured]")
    tool, choice = msgspec.structs.replace(CALCULATOR, function=None), ToolChoice(required=True)
    server = policy_server()

    async def body(reasoner: Reasoner) -> tuple[Solution, ...]:
        async def solve(problem: str, tool_choice: ToolChoice) -> Solution:
            asked = {"seed": 1, "tools": [tool], "tool_choice": tool_choice}
            return await reasoner.solve(problem, "greedy", Budget(tokens=60), **asked)

        problem = "Use the calculator: 37*45 + 12"
        return await solve(problem, choice), await solve(PROBLEMS[1], choice), await solve(PROBLEMS[1], AUTO)

    willing, forced, free = on_servers(body, server)
    assert [call.canonical for call in willing.calls] == ['calculator({"expression":"37*45+12"})']
    assert ["<call>" in solution.text for solution in (forced, free)] == [True, False]
    assert not any("response_format" in request for request in server.requests)
