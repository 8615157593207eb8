"""Best-of-n throughput: n samples of one prompt through the engine, and through a peer in turn with it.

Both get the same token ids, sample at temperature 1 from the whole distribution, and never stop early. Every
run has a prompt of its own, so no cache of an earlier run helps. Runs alternate, and medians are reported: a
machine that slows down meanwhile slows both.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import ExtendParams, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from ...reasoning.source import ModelSource, find_source

PEERS = ("transformers",)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """`samples` continuations of `new_tokens` each behind a prompt of `prompt_tokens`; `repeats` timed
    runs."""

    samples: int = 16
    prompt_tokens: int = 512
    new_tokens: int = 128
    repeats: int = 3

    @property
    def generated(self) -> int:
        """Tokens that one run generates."""
        return self.samples * self.new_tokens


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one dtype. Rates are generated tokens per second, the prompt's time included; `ratio` is
    ours over the peer's, both null without a peer."""

    model: str
    dtype: str
    deterministic: bool
    threads: int
    workload: Workload
    tokens_per_s: float
    peer: str | None = None
    peer_tokens_per_s: float | None = None
    ratio: float | None = None


class Peer(Protocol):
    """Another program on the same weights."""

    def generate(self, prompt: Sequence[int], workload: Workload) -> None:
        """All samples of one prompt."""
        ...


def measure(model: str, dtype: str, workload: Workload, peer: str | None, threads: int | None) -> Measured:
    """Open `model` and run the workload; with `peer`, on both in turn. Restores torch's thread count."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return anyio.run(_measure, find_source(model), dtype, workload, peer)
    finally:
        torch.set_num_threads(before)


async def _measure(source: ModelSource, dtype: str, workload: Workload, peer: str | None) -> Measured:
    import torch

    with ExitStack() as stack:
        engine = await open_engine(source, dtype)
        async with engine:
            info = engine.models["policy"]
            workload = fit(workload, info.max_model_len)
            other = _open_peer(source.policy, dtype, stack) if peer else None
            prompts = [
                _prompt(info.vocab_size, workload.prompt_tokens, run) for run in range(workload.repeats + 1)
            ]
            ours: list[float] = []
            theirs: list[float] = []
            for prompt in prompts:
                ours.append(await _time_engine(engine, prompt, workload))
                if other is not None:
                    started = time.perf_counter()
                    other.generate(prompt, workload)
                    theirs.append(time.perf_counter() - started)
    rate = _rate(workload, ours)
    peer_rate = _rate(workload, theirs) if theirs else None
    return Measured(
        model=source.name,
        dtype=dtype,
        deterministic=source.deterministic,
        threads=torch.get_num_threads(),
        workload=workload,
        tokens_per_s=rate,
        peer=peer,
        peer_tokens_per_s=peer_rate,
        ratio=None if peer_rate is None else rate / peer_rate,
    )


async def open_engine(source: ModelSource, dtype: str) -> Engine:
    """The engine on the source's policy, as `solve` would open it."""
    return await Engine.open_models(
        {"policy": source.policy}, dtype=dtype, deterministic=source.deterministic
    )


def fit(workload: Workload, max_model_len: int) -> Workload:
    """The workload with its prompt shortened to the context; `UsageError` if the new tokens alone do not
    fit."""
    room = max_model_len - workload.new_tokens
    if room < 1:
        raise UsageError(
            f"--new {workload.new_tokens} leaves no room for a prompt in {max_model_len} positions of context"
        )
    return msgspec.structs.replace(workload, prompt_tokens=min(workload.prompt_tokens, room))


def _rate(workload: Workload, seconds: Sequence[float]) -> float:
    """Tokens per second of the median run; the first one warms up and does not count."""
    return workload.generated / statistics.median(seconds[1:])


def _prompt(vocab_size: int, length: int, run: int) -> list[int]:
    """Seeded ids from the upper half of the vocabulary, where control tokens are rare."""
    draw = random.Random(run)
    return [draw.randrange(vocab_size // 2, vocab_size) for _ in range(length)]


async def _time_engine(engine: Engine, prompt: Sequence[int], workload: Workload) -> float:
    """Seconds from the prompt to the last token of all samples."""
    params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=workload.new_tokens)
    started = time.perf_counter()
    root = engine.open(prompt, seed=0)
    branches = engine.fork(root, range(1, workload.samples + 1))
    async with anyio.create_task_group() as tasks:
        for branch in branches:
            tasks.start_soon(engine.extend, branch, params, Unlimited())
    elapsed = time.perf_counter() - started
    for branch in (*branches, root):
        engine.release(branch)
    return elapsed


def _open_peer(model: Path, dtype: str, stack: ExitStack) -> Peer:
    from .transformers_peer import TransformersPeer

    if model.suffix != ".gguf":
        return TransformersPeer(model, dtype)
    from ...engine.models.gguf import to_transformers

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="branchwise-bench-")))
    to_transformers(model, folder)
    return TransformersPeer(folder, dtype)
