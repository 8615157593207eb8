"""A whole search on the GPU: the shipped reference model solves a problem, and does so again."""

from collections.abc import Iterator

import anyio
import msgspec

from ....engine.engine import Engine
from ....reasoning.budget import Budget
from ....reasoning.reasoner import Reasoner
from ....reasoning.settle import Settler
from ....reasoning.solution import Solution
from ....strategies.best_of_n import BestOfN
from ....verifiers.problem import Problem
from ...reference.problems import CountdownTask, ReplayVerifier
from ...reference.source import open_source
from .rows import Row, held
from .setting import Setting

SECTION = "search"
_TEXT = "Use 3, 7 and 12 to make 43"
_SEED = 5


def rows(setting: Setting) -> Iterator[Row]:
    """In both types that models are opened in."""
    branches = 32 if setting.sizes.full else 4
    for dtype in ("float32", "bfloat16") if setting.sizes.full else ("float32",):
        first, second = (anyio.run(_solve, setting, dtype, branches) for _ in range(2))
        told = f"best_of_n(n={branches}), {dtype}"
        used = first.usage.engine["kv_peak_tokens"]
        solved = first.verified is True and used > 0
        yield held(SECTION, "the reference model solves", solved or not setting.sizes.full, shape=told)
        same = first.candidates == second.candidates and first.answer == second.answer
        yield held(SECTION, "the same seed solves the same way", same, shape=told)


async def _solve(setting: Setting, dtype: str, branches: int) -> Solution:
    # Tasks are registered where the package is installed, and here it may not be.
    source, settler = msgspec.structs.replace(open_source(), tasks_only=False), Settler()
    engine = await Engine.open_models(
        {"policy": source.policy},
        dtype=dtype,
        device=str(setting.device),
        kv_memory=1 << 30 if setting.sizes.full else 1 << 24,
        block_size=setting.sizes.page,
        deterministic=True,
        threads=1,
        settle=settler.settle,
        due=settler.due,
    )
    task = CountdownTask.recognise(_TEXT)
    assert task is not None
    problem = Problem(text=task.prompt(), task=task)
    async with (
        engine,
        Reasoner.over(engine, source=source, reproducible=True, settler=settler) as reasoner,
    ):
        budget = Budget(tokens=branches * 512)
        return await reasoner.solve(
            problem, BestOfN(n=branches), budget, verifier=ReplayVerifier(task), seed=_SEED
        )
