"""The contract fits refinement: a new root with a prompt of its own, in the same budget and graph."""

from typing import Annotated

import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.conclusion import conclude_all, reach_answer
from msgspec import Meta
from support.scripted import ScriptedEngine
from support.searching import DigitVerifier, solve


class Refine(Strategy, tag="refine", kw_only=True, frozen=True):
    """Answer, then `rounds` times ask for a better answer with the last one in the prompt
    (Self-Refine, Madaan et al. 2023, arXiv 2303.17651)."""

    rounds: Annotated[int, Meta(ge=1)] = 2

    async def run(self, search: Search) -> None:
        branch = search.root
        for _ in range(self.rounds + 1):
            if not await reach_answer(branch):
                await conclude_all(search, [branch])
                return
            await branch.evaluate()
            search.offer(branch)
            branch = await search.open(f"{search.problem.text}; not {branch.answer}, but")


def counts_up(text: str, seed: int) -> str:
    """Answers one more than the answer in the prompt, 1 without one."""
    prompt, _, written = text.partition(":")
    last = prompt.partition("not ")[2].partition(",")[0]
    return f"ab;|{int(last or 0) + 1}$"[len(written) :] or "$"


@pytest.mark.parametrize("rounds", [1, 3])
def test_each_round_is_a_new_root(rounds: int):
    engine = ScriptedEngine({"policy": counts_up})
    solution = solve(engine, Refine(rounds=rounds))
    assert [candidate.answer for candidate in solution.candidates] == [str(i + 1) for i in range(rounds + 1)]
    assert [candidate.id for candidate in solution.candidates] == [str(i) for i in range(rounds + 1)]
    assert solution.usage.tokens == 6 * (rounds + 1) == engine.tokens_sampled
    assert solution.graph.tokens_spent == solution.usage.tokens
    prompts = [node for node in solution.graph.nodes() if node.kind == "prompt"]
    assert [prompt.text for prompt in prompts][:2] == ["task", "task; not 1, but"]
    assert solution.usage.prompt_tokens == sum(prompt.length for prompt in prompts[: rounds + 1])
    assert engine.live_sequences == 0


def test_it_stops_at_a_sound_pass():
    solution = solve(ScriptedEngine({"policy": counts_up}), Refine(rounds=5), verifier=DigitVerifier("3"))
    assert (solution.reason, solution.answer, len(solution.candidates)) == (Reason.SOLVED, "3", 3)


@pytest.mark.parametrize("tokens", [2, 6, 7, 11, 12, 100])
def test_all_rounds_share_one_budget(tokens: int):
    solution = solve(ScriptedEngine({"policy": counts_up}), Refine(rounds=20), Budget(tokens=tokens))
    assert solution.usage.tokens == tokens
    assert solution.reason is Reason.BUDGET
