"""The contract fits budget forcing: the end of thinking is dropped, "wait" is forced, thinking is capped."""

from typing import Annotated

import pytest
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.budget import Budget
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.conclusion import conclude_all
from msgspec import Meta
from support.scripted import ScriptedEngine
from support.searching import solve


class Chain(Strategy, tag="chain", kw_only=True, frozen=True):
    """One chain that is made to think longer: `waits` times its end of thinking is dropped and `wait`
    forced in its place; `think` caps the tokens of thinking (s1, Muennighoff et al. 2025, arXiv
    2501.19393)."""

    waits: Annotated[int, Meta(ge=0)] = 1
    think: Annotated[int, Meta(ge=1)] | None = None
    wait: str = "W"

    async def run(self, search: Search) -> None:
        branch = search.root
        async with search.phase("think", tokens=self.think):
            step = await branch.extend(Until.THINK)
            for _ in range(self.waits):
                # A chain that a limit cut is not asked to go on (the trap of the published code).
                if step.stop is not Stop.THINK_END:
                    break
                branch.truncate(len(branch.tokens) - 1)
                step = await branch.append(self.wait)
                if step.stop is not Stop.BUDGET:
                    step = await branch.extend(Until.THINK)
        await conclude_all(search, [branch])


def thinker(text: str, seed: int) -> str:
    """Thinks in steps of `ab;`, two of them before each end of thinking, and answers the number of its
    waits."""
    thought, end, said = text.removeprefix("Qtask:").partition("|")
    if end:
        return f"{thought.count('W')}$"[len(said) :] or "$"
    since_wait = thought.rpartition("W")[2]
    return "ab;ab;|"[len(since_wait)]


def engine() -> ScriptedEngine:
    return ScriptedEngine({"policy": thinker})


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_wait_takes_the_place_of_the_end_of_thinking(waits: int):
    run = engine()
    solution = solve(run, Chain(waits=waits))
    assert solution.answer == str(waits)
    assert solution.text == "W".join(["ab;ab;"] * (waits + 1)) + f"|{waits}$"
    # 7 tokens a round with its end, the forced waits, the answer and its end; what was dropped stays paid.
    assert solution.usage.tokens == 7 * (waits + 1) + waits + 2
    assert solution.usage.discarded_tokens == waits
    assert run.tokens_sampled == solution.usage.tokens - waits


@pytest.mark.pins("simplescaling/s1#53")
@pytest.mark.parametrize("think", [1, 6, 7, 8, 11, 14, 15])
def test_forced_thinking_stays_in_its_cap_and_the_answer_runs_after_it(think: int):
    solution = solve(engine(), Chain(waits=2, think=think))
    thinking = solution.text.partition("|")[0]
    assert len(thinking) <= think
    assert solution.answer == str(thinking.count("W"))
    assert solution.candidates[0].complete


@pytest.mark.parametrize("tokens", [4, 8, 9, 10, 17, 30])
def test_a_budget_that_ends_thinking_leaves_the_reserve_for_the_answer(tokens: int):
    solution = solve(engine(), Chain(waits=5), Budget(tokens=tokens, answer_reserve=3))
    assert solution.answer is not None
    assert solution.candidates[0].complete
    assert solution.usage.tokens <= tokens
