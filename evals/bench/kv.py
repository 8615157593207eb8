"""Peak KV of tree search: what pruning gives back while a search runs."""

from importlib.metadata import version
from typing import Any

import anyio
import msgspec

from ...engine.protocol import Backend, SeqId
from ...reasoning.budget import Budget
from ...reasoning.opened import open_engine
from ...reasoning.reasoner import Reasoner
from ...reasoning.solution import Solution
from ...strategies.base import Strategy
from ...strategies.grammar import parse_strategy
from ..suites.base import Sample, problem_of
from ..suites.registry import open_suite
from .contender import Figures
from .result import OURS, Result, Work, make_result

KEEPING = "branchwise keeping what is pruned"

_BUDGET = Budget(tokens=16384)


class Kv(msgspec.Struct, frozen=True, kw_only=True):
    """`problems` of Countdown with four numbers, solved on the reference model by one tree strategy of width
    `width`: once as it is, and once on a back end that keeps pruned sequences until the search is over."""

    problems: int = 20
    width: int = 16
    threads: int = 1

    def strategies(self) -> dict[str, str]:
        """The tree strategies by name, as the grammar writes them."""
        n = self.width
        children = min(4, n)
        return {
            "beam": f"beam(n={n}, width={children})",
            "dvts": f"dvts(n={n}, width={children})",
            "rebase": f"rebase(width={n})",
            "ets": f"ets(width={n})",
            "mcts": f"mcts(rollouts={4 * n}, width={children})",
            "best_first": f"best_first(width={children}, expansions={n})",
            "speculative_rejection": f"speculative_rejection(n={n})",
        }

    def measure(self, name: str) -> Result:
        """Positions of all models held at once at the peak of a search, shared ones once and as if nothing
        were shared, and the tokens spent: the medians over the problems."""
        return anyio.run(self._measure, self.strategies()[name])

    async def _measure(self, strategy: str) -> Result:
        runs: dict[str, list[Figures]] = {OURS: [], KEEPING: []}
        async with open_engine("reference", device="cpu", dtype="float32", threads=self.threads) as engine:
            keeping = Keeping(engine.backend)
            beside = msgspec.structs.replace(engine, backend=keeping)
            async with Reasoner.open(engine=engine) as pruning, Reasoner.open(engine=beside) as kept:
                for seed, sample in enumerate(open_suite("countdown4").samples(self.problems, 0)):
                    parsed = parse_strategy(strategy)
                    ours = await _solved(pruning, sample, parsed, seed)
                    other = await _solved(kept, sample, parsed, seed)
                    keeping.let_go()
                    another = f"{strategy} on {sample.id}: another search"
                    assert other.usage.tokens == ours.usage.tokens, another
                    assert other.candidates == ours.candidates, another
                    runs[OURS].append(_figures(ours))
                    runs[KEEPING].append(_figures(other))
        work = Work(
            bench="kv",
            subject=strategy,
            model="reference",
            dtype="float32",
            deterministic=True,
            threads=self.threads,
            sizes={"problems": self.problems, "width": self.width},
            figure="kv_peak_tokens",
        )
        here = f"branchwise {version('branchwise')}"
        return make_result(work, runs, {OURS: here, KEEPING: f"{KEEPING} ({version('branchwise')})"})


class Keeping:
    """The engine, with pruned sequences held until `let_go`: what a search would hold that prunes nothing."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._pruned: list[SeqId] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        """`pruned`: not before `let_go`."""
        if pruned:
            self._pruned.append(seq)
        else:
            self._engine.release(seq)

    def let_go(self) -> None:
        """The search is over: give back what it pruned."""
        while self._pruned:
            self._engine.release(self._pruned.pop(), pruned=True)


async def _solved(reasoner: Reasoner, sample: Sample, strategy: Strategy, seed: int) -> Solution:
    return await reasoner.solve(problem_of(sample), strategy, _BUDGET, seed=seed)


def _figures(solution: Solution) -> Figures:
    engine = solution.usage.engine
    return {
        "kv_peak_tokens": float(engine["kv_held_peak_tokens"]),
        "kv_unshared_peak_tokens": float(engine["kv_unshared_peak_tokens"]),
        "tokens": float(solution.usage.tokens),
    }
