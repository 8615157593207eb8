"""Best-of-64 on a long prompt of token ids, on a tiny random model: the prompt is paid for and held once."""

import anyio
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.settle import Settler
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.problem import Problem
from support.tiny import save_model, save_tokenizer

WIDTH = 64
NEW = 8


class Fork64(Strategy, tag="fork64", frozen=True, kw_only=True):
    length: int
    leave: str

    async def run(self, search: Search) -> None:
        prompt = await search.open([3 + (7 * i) % 200 for i in range(self.length)])
        children = prompt.fork(WIDTH)
        prompt.prune("forked")

        async def sample(branch: Branch) -> None:
            await branch.extend(Until.END, max_tokens=NEW)

        async with search.each(children, sample) as done:
            async for branch in done:
                search.offer(branch)
                if self.leave == "break":
                    break
                if self.leave == "error":
                    raise ValueError("left by an error")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    save_model(path, "Llama", max_position_embeddings=512)
    save_tokenizer(path)
    return path


def run(folder, strategy):
    async def main():
        settler = Settler()
        engine = await Engine.open_models(
            {"policy": folder}, check=True, settle=settler.settle, due=settler.due
        )
        pool = engine.scheduler.memories["policy"].pool
        async with engine, Reasoner.over(engine, settler=settler) as reasoner:
            solution = await reasoner.solve(Problem(text="x"), strategy, Budget(tokens=5000), seed=1)
        return solution, pool

    return anyio.run(main)


@pytest.mark.parametrize(("length", "copies"), [(400, 0), (403, WIDTH - 1)])
def test_the_prompt_is_computed_once_and_the_tail_copied_once_per_writer_but_the_last(folder, length, copies):
    solution, pool = run(folder, Fork64(length=length, leave="end"))
    engine = solution.usage.engine
    assert len(solution.candidates) == WIDTH
    assert engine["prefill_tokens"] == length
    assert engine["decode_tokens"] == solution.usage.tokens - WIDTH
    assert engine["recomputed_tokens"] == engine["cached_tokens"] == 0
    assert engine["copied_blocks"] == copies
    assert engine["kv_peak_tokens"] <= length + WIDTH * NEW
    assert engine["kv_held_peak_tokens"] <= length + WIDTH * (NEW - 1) + copies * 16
    assert engine["kv_unshared_peak_tokens"] > 20 * engine["kv_peak_tokens"]
    assert pool.owned == 0


@pytest.mark.parametrize("leave", ["break", "error"])
def test_leaving_early_frees_every_block(folder, leave):
    solution, pool = run(folder, Fork64(length=403, leave=leave))
    assert len(solution.candidates) == 1
    assert pool.owned == 0
