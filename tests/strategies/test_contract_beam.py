"""The contract fits beam search: step by step, scored, the worst pruned, the best forked."""

from typing import Annotated

import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Branch, Needs, Search, Strategy
from msgspec import Meta
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, outside_engine, solve, uneven, writer

Count = Annotated[int, Meta(ge=1)]


class Beam(Strategy, tag="beam", kw_only=True, frozen=True):
    """Keep the `beams / width` best partial solutions after each step, and go on `width` times from each
    (Snell et al. 2024, arXiv 2408.03314)."""

    needs = Needs(step_scores=True)

    beams: Count = 8
    width: Count = 4
    depth: Count = 40

    async def run(self, search: Search) -> None:
        front = search.root.fork(self.beams)
        for _ in range(self.depth):
            front = await self._grow(search, front)
            kept = sorted(front, key=value, reverse=True)[: self.beams // self.width]
            for branch in front:
                if branch not in kept:
                    branch.prune("beam")
            if search.budget.spent or not kept:
                break
            front = [child for branch in kept for child in branch.fork(self.width)]
        for branch in sorted(front, key=value, reverse=True):
            if branch.live:
                await branch.conclude()
                search.offer(branch)

    async def _grow(self, search: Search, front: list[Branch]) -> list[Branch]:
        """Extend all by a step; offers what is complete, returns what goes on."""
        going: list[Branch] = []
        async with search.each(front, step) as done:
            async for branch in done:
                if branch.complete:
                    search.offer(branch)
                else:
                    going.append(branch)
        return going


async def step(branch: Branch) -> None:
    taken = await branch.extend(Until.STEP)
    if taken.stop is not Stop.BUDGET:
        await branch.evaluate()


def value(branch: Branch) -> float:
    return -1.0 if branch.score is None else branch.score


def likes_b(text: str) -> float:
    """The share of b in the last step."""
    last = text.rstrip(";").rpartition(";")[2]
    return last.count("b") / max(1, len(last))


def engine(**options) -> ScriptedEngine:
    return ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}, rewards={"prm": likes_b}, **options)


def forking(**options) -> ScriptedEngine:
    """As `engine`, but each fork's seed writes its own next step, whatever came before."""

    def script(text: str, seed: int) -> str:
        written = text[PROMPT_LENGTH:]
        if "|" in written:
            return "7$"[len(written.partition("|")[2]) :] or "$"
        done, _, current = written.rpartition(";")
        plan = writer(f"{done}", seed).partition(";")[0] + ";"
        if written.count(";") >= 3 and not current:
            return "|"
        return plan[len(current)]

    return ScriptedEngine({"policy": script}, rewards={"prm": likes_b}, **options)


def test_it_reaches_answers_and_keeps_only_the_best():
    run = forking(pace=uneven)
    solution = solve(run, Beam(), verifier="prm")
    assert solution.answer == "7"
    assert solution.reason is Reason.EXHAUSTED
    pruned = [node for node in solution.graph.nodes() if node.reason == "beam"]
    assert len(pruned) >= 6
    assert all(node.state is NodeState.PRUNED for node in pruned)
    assert solution.graph.tokens_spent == solution.usage.tokens == run.tokens_sampled
    assert run.live_sequences == 0


def test_each_position_is_scored_once_per_branch():
    run = forking()
    solution = solve(run, Beam(beams=4, width=2), verifier="prm")
    longest = max(candidate.tokens for candidate in solution.candidates)
    assert 0 < solution.usage.scored_tokens <= solution.usage.tokens + 4 * longest


def test_it_needs_step_scores():
    with pytest.raises(CapabilityError, match="strategy beam needs a verifier"):
        solve(ScriptedEngine({"policy": following(writer, PROMPT_LENGTH)}), Beam())


@pytest.mark.parametrize("tokens", [1, 9, 30, 77, 200])
def test_the_budget_holds_and_the_speed_does_not_matter(tokens: int):
    slow, fast = (
        solve(forking(pace=pace), Beam(), Budget(tokens=tokens), verifier="prm")
        for pace in (uneven, lambda seed, position: 0)
    )
    assert slow.usage.tokens <= tokens
    assert outside_engine(slow) == outside_engine(fast)


def test_it_runs_on_any_writer():
    solution = solve(engine(), Beam(beams=4, width=4), Budget(tokens=300), verifier="prm")
    assert solution.candidates
