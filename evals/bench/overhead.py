"""Overhead: milliseconds that the engine takes per step around a model that takes none."""

import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.protocol import ExtendParams, Extension, Meter, SeqId
from ...engine.text.stop import Until
from ...reasoning.budget import Budget
from ...reasoning.reasoner import Reasoner
from ...reasoning.settle import Settler
from ...strategies.base import Branch, Search, Strategy
from .arena import torch_threads
from .oracle import OracleModel, oracle_engine_model
from .result import OURS, Result, Work, make_result

PROMPT = "overhead"
WARM_UP = 20
"""Steps that do not count."""


class _Rows(Strategy, tag="bench_rows", kw_only=True, frozen=True):
    """`rows` branches that generate `tokens` tokens each, under two phases: three nested meters with the
    run's."""

    rows: int
    tokens: int

    async def run(self, search: Search) -> None:
        async def extend(branch: Branch) -> None:
            await branch.extend(Until.END, max_tokens=self.tokens)

        async with (
            search.phase("outer", tokens=self.rows * self.tokens),
            search.phase("inner", tokens=self.rows * self.tokens),
            search.each(search.root.fork(self.rows), extend) as done,
        ):
            async for _ in done:
                pass


class _Streaming:
    """The engine, with each extension read as a stream: every step delivers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        return await self._engine.extend(seq, params, meter, on_tokens or _read)


def _read(tokens: Sequence[int]) -> None:
    """Somebody reads the stream."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` steps in which `rows` branches of one search each get a token: plan, batch, commit and
    delivery, with three nested meters, on a model without layers whose own time is left out."""

    rows: int = 64
    steps: int = 1000

    def measure(self) -> Result:
        """Milliseconds per step: the median, and the 95th percentile."""
        with torch_threads(1):
            milliseconds = anyio.run(self._run)
        figures = {
            "ms_per_step": statistics.median(milliseconds),
            "ms_per_step_p95": statistics.quantiles(milliseconds, n=20)[-1]
            if len(milliseconds) > 1
            else milliseconds[0],
        }
        work = Work(
            bench="overhead",
            model="oracle",
            dtype="float32",
            deterministic=False,
            threads=1,
            sizes=msgspec.to_builtins(self),
            figure="ms_per_step",
        )
        return make_result(work, {OURS: [figures]}, {OURS: f"branchwise {version('branchwise')}"})

    async def _run(self) -> list[float]:
        tokens = self.steps + WARM_UP + 2
        model, settler = OracleModel(), Settler()
        hosted = oracle_engine_model(model, self.rows, len(PROMPT) + tokens + 1)
        engine = Engine({"policy": hosted}, settle=settler.settle, due=settler.due)
        budget = Budget(tokens=self.rows * tokens, flops=10**15)
        async with (
            engine,
            Reasoner.over(_Streaming(engine), reproducible=False, settler=settler) as reasoner,  # pyright: ignore[reportArgumentType]
        ):
            await reasoner.solve(PROMPT, _Rows(rows=self.rows, tokens=tokens), budget, seed=0)
        return self._gaps(model)

    def _gaps(self, model: OracleModel) -> list[float]:
        """From one step's model to the next one's, less its own time, over the steps with all rows."""
        full = [index for index, rows in enumerate(model.rows) if rows == self.rows][WARM_UP:]
        return [
            (model.entered[index + 1] - model.entered[index] - model.own[index]) * 1e3
            for index in full[: self.steps]
            if index + 1 < len(model.entered)
        ]
