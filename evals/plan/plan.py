"""A plan: the real strategies on the real scheduler, on a simulated machine."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.hosted import EngineModel
from ...engine.models.config import ModelConfig
from ...reasoning.budget import Budget
from ...reasoning.failure import single
from ...reasoning.reasoner import Reasoner
from ...reasoning.settle import Settler
from ...reasoning.solution import Reason, Solution
from ...verifiers.problem import Problem
from .machine import Machine
from .memory import Memory, plan_memory
from .oracle import OracleTokenizer, OracleWriter, Writing, oracle_info
from .runner import Progress, SimulatedRunner
from .step_time import StepClock, StepSeconds


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be solved: `problems` problems that are there at once, with prompts of `prompt_tokens`
    tokens that share nothing; other seeds are other problems. `step` and `max_tokens` as `Reasoner.solve`
    takes them."""

    strategy: str
    budget: Budget
    problems: int = 1
    prompt_tokens: int = 512
    writing: Writing = Writing()
    step: str | None = None
    max_tokens: int | None = None
    verifier: str | None = None
    seed: int = 0


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are opened: by role, `element_bytes` per element, and the engine's own options."""

    configs: Mapping[str, ModelConfig]
    machine: Machine
    element_bytes: int = 2
    block_size: int = 32
    max_step_tokens: int = 2048
    max_model_len: int | None = None
    kv_memory: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What it would take. `seconds` until the last problem is solved; `parts` are seconds of the machine.

    `tokens` are the budget's, over all problems; KV in positions of all models, at the peak over all
    problems, `kv_unshared_positions` as if no search shared any. `solved_s` has each problem's time, rising;
    `reasons` counts why searches ended.
    """

    machine: str
    seconds: float
    parts: StepSeconds
    steps: int
    rows: int
    drawn: int
    tokens: int
    flops: int
    kv_positions: int
    kv_bytes: int
    kv_unshared_positions: int
    preemptions: int
    solved_s: tuple[float, ...]
    reasons: dict[str, int]
    memory: Memory

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens of all problems per second."""
        return self.drawn / self.seconds if self.seconds else 0.0

    def solved_quantile(self, share: float) -> float:
        """Seconds within which this share of the problems is solved."""
        return self.solved_s[min(len(self.solved_s), max(1, math.ceil(share * len(self.solved_s)))) - 1]


def make_plan(serving: Serving, workload: Workload) -> Plan:
    """Run the workload. Raises `UsageError` in one line."""
    return anyio.run(_Simulation(serving, workload).run)


async def solve_all(
    reasoner: Reasoner, workload: Workload, now: Callable[[], float], interrupt: anyio.Event | None = None
) -> "list[Solved]":
    """All problems of the workload side by side, each with the time at which it was solved. `UsageError`
    where a search failed."""
    solved: list[Solved] = []

    async def one(number: int) -> None:
        solution = await reasoner.solve(
            Problem(text=f"problem {workload.seed}.{number}", id=str(number)),
            workload.strategy,
            workload.budget,
            verifier=workload.verifier,
            seed=workload.seed + number,
            step=workload.step,
            max_tokens=workload.max_tokens,
            interrupt=interrupt,
        )
        solved.append(Solved(now(), solution))

    try:
        async with anyio.create_task_group() as group:
            for number in range(workload.problems):
                group.start_soon(one, number)
    except BaseExceptionGroup as errors:
        raise single(errors) from None
    for one_solved in solved:
        if one_solved.solution.reason is Reason.FAILED:
            raise UsageError(f"a search failed on the plan's model: {one_solved.solution.error}")
    return solved


class Solved(NamedTuple):
    """A solution, and when it was there."""

    at_s: float
    solution: Solution


class _Simulation:
    """One plan in the making."""

    def __init__(self, serving: Serving, workload: Workload) -> None:
        self._serving = serving
        self._workload = workload
        self._progress = Progress(serving.machine.step_s)
        tokenizer = OracleTokenizer(workload.prompt_tokens)
        self._infos = {
            role: oracle_info(role, config, tokenizer, serving.max_model_len)
            for role, config in serving.configs.items()
        }
        self._memory = plan_memory(
            serving.configs,
            serving.machine.memory_bytes,
            element_bytes=serving.element_bytes,
            block_size=serving.block_size,
            max_step_tokens=serving.max_step_tokens,
            longest=max(info.max_model_len for info in self._infos.values()),
            kv_memory=serving.kv_memory,
        )
        self._limit_s = workload.budget.seconds
        self._interrupt: anyio.Event | None = None
        self._late = False
        self._peak_blocks = self._peak_bytes = 0

    async def run(self) -> Plan:
        """All problems at once."""
        settler = Settler()
        engine = Engine(
            {role: self._model(role) for role in self._serving.configs},
            max_step_tokens=self._serving.max_step_tokens,
            settle=settler.settle,
            due=settler.due,
        )
        self._watch(engine)
        # Seconds of the budget are the machine's, so the searches themselves see no limit of them.
        limitless = msgspec.structs.replace(
            self._workload, budget=msgspec.structs.replace(self._workload.budget, seconds=None)
        )
        async with engine, Reasoner.over(engine, reproducible=True, settler=settler) as reasoner:
            solved = await solve_all(reasoner, limitless, lambda: self._progress.now, self._interrupt)
        return self._plan(solved)

    def _model(self, role: str) -> EngineModel:
        serving, config = self._serving, self._serving.configs[role]
        clock = StepClock(
            config,
            serving.machine,
            element_bytes=serving.element_bytes,
            block_size=serving.block_size,
            num_blocks=self._memory.num_blocks,
        )
        writer = OracleWriter(self._workload.writing)
        return EngineModel(
            info=self._infos[role],
            runner=SimulatedRunner(clock, writer, self._progress, prompt=self._workload.prompt_tokens),
            num_blocks=self._memory.num_blocks,
            block_size=serving.block_size,
            kv_format="plan",
        )

    def _watch(self, engine: Engine) -> None:
        """After each step: how much KV is held, and whether the time is up."""
        token = anyio.lowlevel.current_token()
        memories, block_bytes = engine.scheduler.memories, self._memory.block_bytes
        self._interrupt = interrupt = anyio.Event()

        def look() -> None:
            owned = {role: memory.pool.owned for role, memory in memories.items()}
            self._peak_blocks = max(self._peak_blocks, sum(owned.values()))
            self._peak_bytes = max(self._peak_bytes, sum(owned[role] * block_bytes[role] for role in owned))
            if self._limit_s is not None and self._progress.now >= self._limit_s and not self._late:
                self._late = True
                anyio.from_thread.run_sync(interrupt.set, token=token)

        self._progress.on_step = look

    def _plan(self, solved: list[Solved]) -> Plan:
        progress, solutions = self._progress, [solution for _, solution in solved]
        reasons = [str(Reason.DEADLINE if self._cut(solution) else solution.reason) for solution in solutions]
        engines = [solution.usage.engine for solution in solutions]
        return Plan(
            machine=self._serving.machine.name,
            seconds=progress.now,
            parts=progress.spent,
            steps=progress.steps,
            rows=progress.rows,
            drawn=progress.drawn,
            tokens=sum(solution.usage.tokens for solution in solutions),
            flops=sum(solution.usage.flops for solution in solutions),
            kv_positions=self._peak_blocks * self._serving.block_size,
            kv_bytes=self._peak_bytes,
            kv_unshared_positions=sum(engine["kv_unshared_peak_tokens"] for engine in engines),
            preemptions=sum(engine["preemptions"] for engine in engines),
            solved_s=tuple(sorted(at for at, _ in solved)),
            reasons={reason: reasons.count(reason) for reason in sorted(set(reasons))},
            memory=self._memory,
        )

    def _cut(self, solution: Solution) -> bool:
        return self._late and solution.reason is Reason.CANCELLED
