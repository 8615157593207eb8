"""The orchestrator on the real engine and the oracle model: books balance against an independent count, and
one seed gives one result whatever the engine's shape and company."""

import random
from collections.abc import Sequence
from typing import Any, ClassVar

import anyio
import msgspec
import pytest
from branchwise.engine.drafting.cost import VerifyCost
from branchwise.engine.engine import Engine, EngineModel
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.settle import Settler
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Step, Strategy
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.reward import RewardVerifier
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafters import RandomDrafter, Untimed, steer
from support.oracle import CountingTokenizer, IdStopWatch, OracleRunner, oracle_info
from support.searching import Samples, outside_engine

THINK_END = 1
MARK = 2


class WordTokenizer(CountingTokenizer):
    """Ids as words, and a chat template that hashes the problem's text to a few ids."""

    def chat(self, messages: Any, *, think: bool | None = None) -> list[int]:
        rng = random.Random(messages[-1].content)
        return [rng.randrange(3, 50) for _ in range(9)]


PROFILE = ModelProfile(step_mark=" 2", think_end="1", final_answer="eos", stop_ids=frozenset({0}), wait="3")


class ThinkingWatch(IdStopWatch):
    """The same on ids: token 1 ends thinking, token 2 ends a step."""

    def push(self, token: int):
        from branchwise.engine.text.stop import Stop

        stop = super().push(token)
        if stop is None and token == THINK_END and self._rule.until in (Until.THINK, Until.STEP):
            return Stop.THINK_END
        if stop is None and token == MARK and self._rule.until is Until.STEP:
            return Stop.MARK
        return stop


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is laid out; no result may depend on it."""

    num_blocks: int = 400
    block_size: int = 4
    max_step_tokens: int = 2048
    max_chunk_tokens: int | None = None


class Rig:
    """An engine on oracle models whose sampled tokens are counted apart from any ledger."""

    def __init__(
        self, shape: Shape, settler: Settler, *, fail_at: Sequence[int] = (), wired: bool = True
    ) -> None:
        info = oracle_info(max_model_len=160)
        self.infos = {
            "policy": msgspec.structs.replace(info, tokenizer=WordTokenizer(), profile=PROFILE),
            "prm": msgspec.structs.replace(
                info, name="prm", head="reward", tokenizer=WordTokenizer(), profile=PROFILE
            ),
        }
        self.runners = {name: OracleRunner(shape.num_blocks, shape.block_size) for name in self.infos}
        failing = set(fail_at)

        def fail(plan: ModelPlan) -> None:
            steps = self.runners["policy"].steps
            if steps in failing:
                failing.discard(steps)
                raise ConnectionError("injected")

        self.runners["policy"].before_step = fail
        self.engine = Engine(
            {
                name: EngineModel(
                    info=info,
                    runner=self.runners[name],
                    num_blocks=shape.num_blocks,
                    block_size=shape.block_size,
                )
                for name, info in self.infos.items()
            },
            max_step_tokens=shape.max_step_tokens,
            max_chunk_tokens=shape.max_chunk_tokens,
            check=True,
            settle=settler.settle if wired else None,
            due=settler.due if wired else None,
            make_stop_watch=ThinkingWatch,
        )

    def draft_at_random(self, seed: int) -> None:
        """Proposals right and wrong, and never too dear."""
        speculation = self.engine.scheduler.speculation
        steer(speculation, RandomDrafter(random.Random(seed)))
        speculation.costs = {name: Untimed(VerifyCost(fixed_rows=1e6)) for name in speculation.costs}

    def sampled(self) -> int:
        return sum(self.runners["policy"].samples.values())

    def all_free(self) -> bool:
        pools = [memory.pool for memory in self.engine.scheduler.memories.values()]
        return all(pool.owned == 0 for pool in pools)


def forced(solution: Solution) -> int:
    return sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")


class Stepwise(Strategy, tag="stepwise_beam", frozen=True):
    """Steps with scores and prunes in between, so that every verb of the engine is used."""

    width: int = 3

    async def run(self, search: Search) -> None:
        beams: list[Branch] = [search.root]
        for _ in range(4):
            children = [child for beam in beams for child in beam.fork(self.width)]
            async with search.each(children, _step) as done:
                ended = [child async for child in done]
            for beam in beams:
                if beam is not search.root:
                    beam.prune("expanded")
            for child in ended:
                await child.evaluate()
                if child.complete:
                    search.offer(child)
            alive = sorted((c for c in ended if not c.complete and c.live), key=lambda c: -(c.score or 0.0))
            beams = alive[:2]
            for loser in alive[2:]:
                loser.prune("outscored")
            if not beams or search.budget.spent:
                break
        for beam in beams:
            search.offer(beam)


async def _step(branch: Branch) -> None:
    await branch.extend(Until.STEP, max_tokens=20)


async def solve_all(
    rig: Rig,
    settler: Settler,
    names: Sequence[str],
    strategy: Strategy,
    budget: Budget,
    *,
    reproducible: bool,
    interrupts: dict[str, int] | None = None,
    verifier: bool = False,
    speculate: str | None = None,
) -> dict[str, Solution]:
    """Solve one problem per name, side by side; `interrupts` ends some after so many turns."""
    results: dict[str, Solution] = {}
    async with rig.engine, Reasoner.over(rig.engine, reproducible=reproducible, settler=settler) as reasoner:

        async def one(name: str) -> None:
            interrupt = anyio.Event()
            async with anyio.create_task_group() as group:
                if interrupts and name in interrupts:
                    group.start_soon(_set_later, interrupt, interrupts[name])
                results[name] = await reasoner.solve(
                    Problem(text=name),
                    strategy,
                    budget,
                    seed=1,
                    verifier=RewardVerifier() if verifier else None,
                    interrupt=interrupt,
                    speculate=speculate,
                )
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(one, name)
        await _quiet(rig)
        assert rig.all_free()
    return results


async def _quiet(rig: Rig) -> None:
    """Let the engine apply every command that was posted."""
    applied = anyio.Event()
    token = anyio.lowlevel.current_token()
    rig.engine.post(lambda: anyio.from_thread.run_sync(applied.set, token=token))
    await applied.wait()


async def _set_later(event: anyio.Event, turns: int) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    event.set()


def run(shape: Shape, names: Sequence[str], strategy: Strategy, budget: Budget, **options: Any):
    settler = Settler()
    fail_at = options.pop("fail_at", ())
    rig = Rig(shape, settler, fail_at=fail_at, wired=options.pop("wired", True))
    drafts = options.pop("drafts", None)
    if drafts is not None:
        options["speculate"] = "ngram(k=5)"
        rig.draft_at_random(drafts)

    async def main():
        return await solve_all(rig, settler, names, strategy, budget, **options)

    return anyio.run(main), rig


def check_books(results: dict[str, Solution], rig: Rig, budget: Budget) -> None:
    for solution in results.values():
        assert solution.graph.tokens_spent == solution.usage.tokens
        assert solution.graph.flops_spent == solution.usage.flops
        if budget.tokens is not None:
            assert solution.usage.tokens <= budget.tokens
        if budget.flops is not None:
            assert solution.usage.flops <= budget.flops
        if budget.kv_tokens is not None:
            assert solution.usage.engine["kv_peak_tokens"] <= budget.kv_tokens
    spent = sum(solution.usage.tokens - forced(solution) for solution in results.values())
    assert spent == rig.sampled()


budgets = st.one_of(
    st.builds(Budget, tokens=st.integers(1, 500)),
    st.builds(Budget, tokens=st.integers(1, 500), flops=st.integers(1, 3_000_000)),
    st.builds(Budget, tokens=st.integers(1, 500), kv_tokens=st.integers(1, 300)),
)
shapes = st.builds(
    Shape,
    num_blocks=st.sampled_from([60, 120, 400]),
    block_size=st.sampled_from([4, 16]),
    max_step_tokens=st.sampled_from([1, 5, 16, 2048]),
    max_chunk_tokens=st.sampled_from([None, 3]),
)


@settings(max_examples=20)
@given(
    budget=budgets,
    shape=shapes,
    n=st.integers(1, 12),
    reproducible=st.booleans(),
    fail_at=st.lists(st.integers(0, 60), max_size=2),
    interrupt=st.none() | st.integers(0, 400),
    stepwise=st.booleans(),
)
def test_one_problem_keeps_its_budget_and_its_books(
    budget, shape, n, reproducible, fail_at, interrupt, stepwise
):
    strategy = Stepwise() if stepwise else Samples(n=n)
    interrupts = None if interrupt is None else {"a": interrupt}
    results, rig = run(
        shape,
        ["a"],
        strategy,
        budget,
        reproducible=reproducible,
        fail_at=fail_at,
        interrupts=interrupts,
        verifier=stepwise,
    )
    check_books(results, rig, budget)


@settings(max_examples=4)
@given(
    budget=budgets,
    reproducible=st.booleans(),
    fail_at=st.lists(st.integers(0, 60), max_size=2),
    interrupts=st.dictionaries(st.integers(0, 63), st.integers(0, 2000), max_size=10),
)
def test_sixty_four_problems_keep_their_budgets_and_their_books(budget, reproducible, fail_at, interrupts):
    names = [f"p{index}" for index in range(64)]
    results, rig = run(
        Shape(num_blocks=900),
        names,
        Samples(n=3),
        budget,
        reproducible=reproducible,
        fail_at=fail_at,
        interrupts={names[index]: turns for index, turns in interrupts.items()},
    )
    assert len(results) == 64
    check_books(results, rig, budget)


@pytest.mark.parametrize("strategy", [Samples(n=8), Stepwise()], ids=["samples", "stepwise"])
def test_same_result_alone_beside_others_and_for_any_shape_of_engine(strategy):
    budget = Budget(tokens=250)
    scored = isinstance(strategy, Stepwise)
    alone, _ = run(Shape(), ["a"], strategy, budget, reproducible=True, verifier=scored)
    expected = outside_engine(alone["a"])
    assert alone["a"].reason in (Reason.BUDGET, Reason.EXHAUSTED)
    names = ["a", *(f"other{index}" for index in range(31))]
    beside, _ = run(Shape(num_blocks=2000), names, strategy, budget, reproducible=True, verifier=scored)
    assert outside_engine(beside["a"]) == expected
    for shape in (
        Shape(max_step_tokens=1),
        Shape(max_step_tokens=7, max_chunk_tokens=2),
        Shape(num_blocks=60),
        Shape(block_size=16),
    ):
        other, _ = run(shape, ["a"], strategy, budget, reproducible=True, verifier=scored)
        assert outside_engine(other["a"]) == expected, shape


@settings(max_examples=4)
@given(shape=shapes, tokens=st.integers(20, 400), kv_tokens=st.none() | st.integers(60, 300))
def test_same_result_for_any_shape_under_any_budget(shape, tokens, kv_tokens):
    budget = Budget(tokens=tokens, kv_tokens=kv_tokens)
    expected, _ = run(Shape(), ["a"], Samples(n=6), budget, reproducible=True)
    found, _ = run(shape, ["a"], Samples(n=6), budget, reproducible=True)
    assert outside_engine(found["a"]) == outside_engine(expected["a"])


class StatsProbe(Strategy, tag="stats_probe", frozen=True):
    """Keeps the steps of two extensions, and what the branch made of them after a truncation."""

    kept: ClassVar[list[Step]] = []

    async def run(self, search: Search) -> None:
        branch = search.root
        whole = await branch.extend(Until.ANSWER, max_tokens=25, sampling=SamplingParams(stats_top_k=4))
        await branch.append([3, 4])
        silent = await branch.extend(Until.STEP, max_tokens=3)
        branch.truncate(len(whole.tokens) - 2)
        self.kept[:] = [whole, silent, *branch.steps]


def test_token_statistics_reach_every_step() -> None:
    run(Shape(), ["a"], StatsProbe(), Budget(tokens=400), reproducible=True)
    whole, silent, *steps = StatsProbe.kept
    assert len(whole.stats) == len(whole.tokens) > 4
    assert len(set(whole.stats)) == len(whole.tokens)
    assert silent.stats == ()
    assert len(steps) > 1
    assert all(len(step.stats) == len(step.tokens) for step in steps)
    assert [one for step in steps for one in step.stats] == list(whole.stats[:-2])


def test_an_engine_that_knows_nothing_of_the_settler_does_not_hang():
    budget = Budget(tokens=250)
    wired, _ = run(Shape(), ["a"], Samples(n=8), budget, reproducible=True)
    bare, _ = run(Shape(), ["a"], Samples(n=8), budget, reproducible=True, wired=False)
    assert bare["a"].usage.tokens == wired["a"].usage.tokens == 250


@settings(max_examples=4)
@given(
    shape=shapes,
    tokens=st.integers(1, 120),
    flops=st.none() | st.integers(1, 600_000),
    kv_tokens=st.none() | st.integers(1, 120),
    drafts=st.integers(0, 99),
    n=st.integers(1, 5),
    stepwise=st.booleans(),
)
def test_same_result_with_drafts_under_any_budget(shape, tokens, flops, kv_tokens, drafts, n, stepwise):
    budget = Budget(tokens=tokens, flops=flops, kv_tokens=kv_tokens)
    strategy = Stepwise() if stepwise else Samples(n=n)
    options = {"reproducible": True, "verifier": stepwise}
    plain, _ = run(Shape(), ["a"], strategy, budget, **options)
    drafted, _ = run(shape, ["a"], strategy, budget, drafts=drafts, **options)
    assert outside_engine(drafted["a"]) == outside_engine(plain["a"])


def test_siblings_in_lockstep_are_the_same_with_drafts():
    budget = Budget(tokens=2000)
    plain, _ = run(Shape(), ["a"], Samples(n=4), budget, reproducible=True)
    drafted, _ = run(Shape(), ["a"], Samples(n=4), budget, reproducible=True, drafts=1)
    assert outside_engine(drafted["a"]) == outside_engine(plain["a"])
    assert drafted["a"].usage.engine["draft_tokens"] > 0


def test_drafts_shorten_a_search_of_one_branch():
    plain, before = run(Shape(), ["a"], Samples(n=1), Budget(tokens=100), reproducible=True)
    drafted, after = run(Shape(), ["a"], Samples(n=1), Budget(tokens=100), reproducible=True, drafts=1)
    assert after.runners["policy"].steps < before.runners["policy"].steps
    assert outside_engine(drafted["a"]) == outside_engine(plain["a"])
    assert 0 < drafted["a"].usage.engine["accepted_tokens"] < drafted["a"].usage.engine["draft_tokens"]
    assert plain["a"].usage.engine["draft_tokens"] == 0
