"""The whole engine, thread and facade, on the oracle model."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from branchwise.engine.engine import Engine, EngineModel
from branchwise.engine.kv.pool import BlockPool
from branchwise.engine.protocol import ModelInfo
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.settling import Settle

from .oracle import IdStopWatch, OracleRunner, oracle_info


class OracleEngine:
    """An `Engine` with its runners at hand. The invariant checker always runs."""

    def __init__(
        self,
        num_blocks: int = 64,
        block_size: int = 4,
        *,
        infos: tuple[ModelInfo, ...] = (),
        max_step_tokens: int = 2048,
        max_chunk_tokens: int | None = None,
        settle: Settle | None = None,
        max_waiting: int = 16384,
        drain_s: float = 0.0,
        stuck_after_s: float = 120.0,
    ) -> None:
        infos = infos or (oracle_info(),)
        self.runners = {info.name: OracleRunner(num_blocks, block_size) for info in infos}
        self.engine = Engine(
            {
                info.name: EngineModel(
                    info=info,
                    runner=self.runners[info.name],
                    num_blocks=num_blocks,
                    block_size=block_size,
                    kv_format="oracle",
                )
                for info in infos
            },
            max_step_tokens=max_step_tokens,
            max_chunk_tokens=max_chunk_tokens,
            check=True,
            max_waiting=max_waiting,
            drain_s=drain_s,
            stuck_after_s=stuck_after_s,
            settle=settle,
            make_stop_watch=IdStopWatch,
        )

    @property
    def runner(self) -> OracleRunner:
        return next(iter(self.runners.values()))

    @property
    def pool(self) -> BlockPool:
        return next(iter(self.engine.scheduler.memories.values())).pool

    async def quiet(self) -> None:
        """Wait until the engine thread has applied every command so far."""
        applied = anyio.Event()
        token = anyio.lowlevel.current_token()
        self.engine.post(lambda: anyio.from_thread.run_sync(applied.set, token=token))
        await applied.wait()

    def fail_once(self, when: Callable[[ModelPlan], bool] = lambda plan: True) -> None:
        """The next step for which `when` holds raises."""

        def fail(plan: ModelPlan) -> None:
            if when(plan):
                self.runner.before_step = lambda plan: None
                raise ConnectionError("injected")

        self.runner.before_step = fail
