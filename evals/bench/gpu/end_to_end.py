"""A whole model: the time of a decode step, and best-of-n through the engine with keys shared and not."""

import gc
import random
import time
from collections.abc import Iterator

import anyio
import msgspec
import torch

from ....engine.engine import Engine
from ....engine.exec.cache import KvCache, bytes_per_block
from ....engine.exec.runner import Runner
from ....engine.hosted import EngineModel
from ....engine.models.open import LoadedModel
from ....engine.models.step_model import Batch
from ....engine.protocol import EngineUsage, ExtendParams, SeqId, Unlimited
from ....engine.sampling.params import SamplingParams
from ....engine.text.stop import StopRule
from ....kernels import bounds
from ....kernels.attention import HeadShape
from ....kernels.dispatch import make_attention
from ....kernels.linear import ROW_TILE, whole_tiles
from ....kernels.noise import Purpose
from ....kernels.tables import RowSpan
from .head_operands import keys_for
from .models import model_of
from .rows import Goal, Row, rated, timed
from .setting import Setting
from .spans import best_of, shuffled, tree_of, unshared

SECTION = "end to end"
_WARM_UP = 4
_MOST_ROWS = 2048


class _Run(msgspec.Struct, frozen=True):
    """Best-of-n once: `seconds` of its steps behind the first few, `prefill_s` of those and of the prompt;
    positions of the KV at the peak."""

    prefill_s: float
    seconds: float
    tokens: int
    peak: int


def rows(setting: Setting) -> Iterator[Row]:
    """The step as one recording, without the host; then the engine, host and all."""
    sizes = setting.sizes
    positions = sizes.prompt + sizes.answer + 2 * sizes.page
    model = model_of(setting, sizes.model, setting.dtype, positions)
    yield from _steps(setting, model, positions)
    gc.collect()
    if setting.device.type == "cuda":
        torch.cuda.empty_cache()
    runs = {name: _measured(setting, model, shared=name == "shared") for name in ("shared", "unshared")}
    per_position = bytes_per_block(model.decoder.shape, 1, setting.dtype)
    told = f"{sizes.branches} branches of {sizes.new} behind {sizes.prompt}"
    for name, run in runs.items():
        note = f"prompt and first tokens {run.prefill_s:.2f} s"
        speed = run.tokens / run.seconds
        yield rated(SECTION, f"best-of-n, {name}", "tokens/s", speed, shape=told, note=note)
        yield rated(SECTION, f"KV at the peak, {name}", "MB", run.peak * per_position / 1e6, shape=told)
    gain = runs["unshared"].seconds / runs["shared"].seconds
    yield rated(SECTION, "best-of-n: gain over unshared", "x", gain, shape=told)


def _steps(setting: Setting, model: LoadedModel, positions: int) -> Iterator[Row]:
    """Time of forward pass and draw."""
    sizes = setting.sizes
    spans = shuffled(best_of(sizes.branches, sizes.prompt, sizes.answer, sizes.page))
    alone = shuffled(unshared(spans)) if not sizes.full else None
    found: dict[str, float] = {}
    for name, chosen, fixed in (
        ("decode step", spans, False),
        ("decode step, deterministic", spans, True),
        ("decode step, unshared", alone, False),
    ):
        if chosen is None:
            continue
        step = _Step(setting, model, chosen, positions, deterministic=fixed)
        found[name] = setting.timer.seconds(step.run)
        bound = bounds.decode_step(sizes.shape, step.tree, setting.machine)
        goal = Goal(1 / 1.35, at_least=True, of_bound=True) if sizes.full and name == "decode step" else None
        told = f"{len(chosen)} rows, {step.tree.unique} positions"
        yield timed(SECTION, name, found[name], bound, shape=told, goal=goal)
    cost = found["decode step, deterministic"] / found["decode step"]
    goal = Goal(1.15) if sizes.full else None
    yield rated(SECTION, "deterministic: cost over fast", "x", cost, goal=goal)


class _Step:
    """A decode step over `spans` with a draw from each row, as operations on fixed memory."""

    def __init__(
        self,
        setting: Setting,
        model: LoadedModel,
        spans: list[RowSpan],
        positions: int,
        *,
        deterministic: bool,
    ) -> None:
        decoder, size = model.decoder, setting.sizes.page
        shape, count = decoder.shape, len(spans)
        blocks = 1 + max(max(span.blocks) for span in spans)
        self._cache = KvCache(shape, blocks, size, decoder.dtype, setting.device)
        heads = HeadShape(shape.heads, shape.kv_heads, shape.head_dim, size, blocks, scale=shape.scale)
        self._attention = make_attention(
            heads,
            size,
            set(shape.windows),
            decoder.dtype,
            setting.device,
            longest=positions,
            max_rows=count + ROW_TILE,
            deterministic=deterministic,
        )
        planned = self._attention.plan(spans)
        self.tree = tree_of(spans, size, planned.by_window[None].work.slots)
        self._decoder, self._tile = decoder, ROW_TILE if deterministic else None
        padded = whole_tiles(count, self._tile)
        places = torch.tensor([span.start for span in spans], device=setting.device)
        tables = torch.tensor([span.blocks[span.start // size] for span in spans], device=setting.device)
        slots = self._cache.slots(tables, places % size)
        tokens = setting.integers(decoder.columns, padded)
        places = torch.nn.functional.pad(places, (0, padded - count))
        self._batch = Batch(tokens, places, slots, planned.by_window, self._tile)
        self._keys = keys_for(setting, count, Purpose.TOKEN)
        self._temperature = torch.full((count,), 0.8, device=setting.device)
        self._count = count

    @torch.inference_mode()
    def run(self) -> object:
        """Forward pass and draw; the logits where nothing draws in the head, or rows must keep their bits."""
        hidden = self._decoder.forward(self._batch, self._cache.blocks, self._attention)[: self._count]
        head = self._decoder.fused_head
        if head is None or self._tile is not None or self._count > head.most_draws:
            return self._decoder.head(hidden, self._tile)
        return head.draw(hidden, self._temperature, self._keys)


def _measured(setting: Setting, model: LoadedModel, *, shared: bool) -> _Run:
    """In an engine of its own."""
    sizes, size = setting.sizes, setting.sizes.page
    each = -(-(sizes.prompt + sizes.new + _WARM_UP) // size) + 1
    blocks = 2 + each * sizes.branches
    most = max(sizes.branches, min(sizes.prompt, _MOST_ROWS))
    runner = Runner(model, blocks, block_size=size, max_rows=most, recorder=setting.make_recorder())
    hosted = EngineModel(
        info=model.info,
        runner=runner,
        num_blocks=blocks,
        block_size=size,
        kv_format="gpu-check",
        block_bytes=bytes_per_block(model.decoder.shape, size, setting.dtype),
    )
    return anyio.run(_best_of, setting, Engine({"policy": hosted}, max_step_tokens=most), shared)


async def _best_of(setting: Setting, engine: Engine, shared: bool) -> _Run:
    """Branches behind one prompt: forks of one sequence, or sequences that find nothing of each other's in
    the cache."""
    sizes, draw, usage = setting.sizes, random.Random(3), EngineUsage()
    prompt = [draw.randrange(sizes.model["vocab_size"]) for _ in range(sizes.prompt)]
    async with engine:
        began = time.perf_counter()
        if shared:
            root = engine.open(prompt, seed=1, usage=usage)
            branches = engine.fork(root, list(range(sizes.branches)))
        else:
            branches = [
                engine.open(prompt, seed=seed, namespace=f"branch {seed}", usage=usage)
                for seed in range(sizes.branches)
            ]
        await _extend(engine, branches, _WARM_UP)
        middle = time.perf_counter()
        await _extend(engine, branches, sizes.new)
        ended = time.perf_counter()
    return _Run(middle - began, ended - middle, sizes.branches * sizes.new, usage.kv_peak_tokens)


async def _extend(engine: Engine, branches: list[SeqId], tokens: int) -> None:
    params = ExtendParams(sampling=SamplingParams(temperature=0.8), stop=StopRule(), max_tokens=tokens)

    async def one(seq: SeqId) -> None:
        found = await engine.extend(seq, params, Unlimited())
        assert found.generated == tokens, f"{found.generated} of {tokens} tokens, then {found.stop}"

    async with anyio.create_task_group() as group:
        for seq in branches:
            group.start_soon(one, seq)
