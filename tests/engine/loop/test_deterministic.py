"""Deterministic mode on real weights: a seed has its tokens and log-probabilities, bit by bit, alone or in a
crowd, whatever the steps, the chunks, the pool and the drafts are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from branchwise.engine.drafting.params import DraftModel, Ngram, Speculate, Suffix
from branchwise.engine.engine import Engine, EngineModel
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import LoadedModel, open_model
from branchwise.engine.protocol import ExtendParams, Unlimited
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.counters import Counters
from branchwise.engine.text.stop import StopRule
from support.tiny import save_model

REFERENCE = Path(__file__).parents[3] / "evals" / "reference" / "models"
SMOL = "BRANCHWISE_SMOL_GGUF"
BLOCK = 16
NEW = 20
AMPLE, SCARCE = 600, 24
"""Blocks of a pool that holds all sequences, and of one that holds a few at a time."""

Found = tuple[tuple[int, ...], tuple[float, ...]]
"""Tokens and log-probabilities of one request."""


class Way(NamedTuple):
    """One way to compute the same: `crowd` requests at once in steps of `rows` rows, chunks of `chunk`."""

    crowd: int
    rows: int = 2048
    chunk: int = 2048
    blocks: int = AMPLE
    speculate: Speculate | None = None


WAYS = {
    "alone": Way(1),
    "one row per step": Way(1, rows=1),
    "batch of 3": Way(3),
    "batch of 3, chunks of 7": Way(3, rows=33, chunk=7),
    "batch of 64": Way(64),
    "batch of 64, steps of 50 rows": Way(64, rows=50, chunk=13),
    "batch of 64, preempted": Way(64, blocks=SCARCE),
    "batch of 3, n-grams": Way(3, speculate=Ngram(k=4)),
    "batch of 64, suffixes": Way(64, speculate=Suffix(k=5)),
    "batch of 64, n-grams, preempted": Way(64, rows=90, blocks=SCARCE, speculate=Ngram(k=3)),
}
DRAFTED = {
    "batch of 3, a draft model": Way(3, speculate=DraftModel(k=3)),
    "batch of 64, a draft model, preempted": Way(64, rows=70, blocks=SCARCE, speculate=DraftModel(k=3)),
}
SAMPLING = SamplingParams(temperature=0.8)
FEW_TOKENS = SamplingParams(temperature=0.8, allowed_tokens=(97, 98, 99, 100))
"""A random model repeats itself only where it has little choice; without repetition there are no drafts."""

WATCHED = 3
"""The first requests of each crowd are compared."""


async def write(
    models: Mapping[str, LoadedModel], sampling: SamplingParams, way: Way
) -> tuple[list[Found], Counters]:
    """What the watched requests get, where `way.crowd` of them run side by side, and what the engine
    counted."""
    hosted = {
        name: EngineModel(
            info=model.info,
            runner=Runner(model, way.blocks, block_size=BLOCK, deterministic=True, max_rows=way.rows),
            num_blocks=way.blocks,
            block_size=BLOCK,
        )
        for name, model in models.items()
    }
    found: dict[int, Found] = {}
    async with Engine(hosted, max_step_tokens=way.rows, max_chunk_tokens=way.chunk) as engine:

        async def one(index: int) -> None:
            seq = engine.open(prompt(models["policy"], index), seed=100 + index)
            params = ExtendParams(sampling=sampling, stop=StopRule(), max_tokens=NEW, speculate=way.speculate)
            extension = await engine.extend(seq, params, Unlimited())
            found[index] = (extension.tokens, extension.logprobs)
            engine.release(seq)

        for first in range(0, max(WATCHED, way.crowd), way.crowd):
            async with anyio.create_task_group() as group:
                for index in range(first, first + way.crowd):
                    group.start_soon(one, index)
        return [found[index] for index in range(WATCHED)], engine.scheduler.counters


def prompt(model: LoadedModel, index: int) -> list[int]:
    """Texts of different lengths with repeated phrases, so that n-grams are found; some begin alike."""
    shared = "Use 3, 7, 12 and 18 to make 45; " * (1 + index % 2)
    ids = model.info.tokenizer.encode(shared + f"{index} " * (index % 7))
    return [token % model.info.vocab_size for token in ids]


def check(
    models: Mapping[str, LoadedModel], ways: Mapping[str, Way], sampling: SamplingParams = SAMPLING
) -> None:
    expected, _ = anyio.run(write, models, sampling, WAYS["alone"])
    assert len({tokens for tokens, _ in expected}) == WATCHED
    for name, way in ways.items():
        found, counters = anyio.run(write, models, sampling, way)
        assert found == expected, name
        if way.blocks == SCARCE:
            assert counters.preemptions > 0, name
        if way.speculate is not None:
            assert counters.drafted_rows > 0, name


@pytest.mark.parametrize("native", [True, False], ids=["native", "torch"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.pins("vllm#33123", "pegainfer#688", "vllm#27433")
def test_a_tiny_random_model(
    dtype: str, native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setenv("BRANCHWISE_NATIVE", "0")
    save_model(tmp_path, "Qwen2", num_hidden_layers=2)
    check({"policy": open_model(tmp_path, dtype=dtype)}, WAYS, FEW_TOKENS)


def test_the_reference_policy_and_its_draft_model() -> None:
    models = {name: open_model(REFERENCE / name) for name in ("policy", "draft")}
    check(models, {**WAYS, **DRAFTED})


@pytest.mark.slow
def test_smollm2() -> None:
    path = os.environ.get(SMOL)
    if not path:
        pytest.skip(f"{SMOL} names no GGUF file of SmolLM2-135M-Instruct")
    check({"policy": open_model(path, dtype="bfloat16", max_model_len=512)}, WAYS)
