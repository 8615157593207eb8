"""The contract fits speculation on steps: a draft writes, a score decides, a rejected step is rewritten."""

from typing import Annotated

import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import NodeState
from branchwise.strategies.base import Branch, Needs, Search, Step, Strategy
from branchwise.strategies.conclusion import conclude_all
from msgspec import Meta
from support.scripted import ScriptedEngine
from support.searching import solve


class SpecReason(Strategy, tag="spec_reason", kw_only=True, frozen=True):
    """The draft model writes each step; below `accept` it is dropped and the policy writes it
    (SpecReason, Pan et al. 2025, arXiv 2504.07891)."""

    needs = Needs(step_scores=True, models=("draft",))
    lossless = False

    accept: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.7

    async def run(self, search: Search) -> None:
        branch = search.root
        while not branch.complete:
            step = await self._next_step(branch)
            if step.stop in (Stop.BUDGET, Stop.LENGTH, Stop.CONTEXT):
                break
            if step.stop is Stop.THINK_END:
                await branch.extend(Until.ANSWER)
                break
        await conclude_all(search, [branch])

    async def _next_step(self, branch: Branch) -> Step:
        start = len(branch.tokens)
        step = await branch.extend(Until.STEP, model="draft")
        score = await branch.evaluate()
        if step.stop is not Stop.MARK or score.value is None or score.value >= self.accept:
            return step
        branch.truncate(start)
        return await branch.extend(Until.STEP)


def writes(steps: str):
    """A model that writes the n-th character of `steps` as its n-th step, then the end of thinking and 9."""

    def script(text: str, seed: int) -> str:
        thought, end, said = text.removeprefix("Qtask:").partition("|")
        if end:
            return "9$"[len(said) :] or "$"
        count, current = thought.count(";"), thought.rpartition(";")[2]
        if count == len(steps) and not current:
            return "|"
        return f"{steps[count]}{steps[count]};"[len(current)]

    return script


def engine(draft: str, policy: str) -> ScriptedEngine:
    return ScriptedEngine(
        {"policy": writes(policy), "draft": writes(draft)},
        rewards={"prm": lambda text: 0.1 if text.rstrip(";")[-1] == "x" else 0.9},
    )


def test_accepted_steps_are_the_drafts_and_rejected_ones_the_policys():
    run = engine("axbx", "pppp")
    solution = solve(run, SpecReason(), verifier="prm")
    assert solution.text == "aa;pp;bb;pp;|9$"
    assert solution.answer == "9"
    # The two rejected steps of 3 tokens were paid for, and stand in the graph as dropped.
    assert solution.usage.discarded_tokens == 6
    assert solution.usage.tokens == len(solution.text) + 6 == run.tokens_sampled
    dropped = [node for node in solution.graph.nodes() if node.reason == "truncated"]
    assert [node.text for node in dropped] == ["xx;", "xx;"]
    assert all(node.state is NodeState.PRUNED for node in dropped)
    assert run.live_sequences == 0


def test_every_step_is_scored_once():
    solution = solve(engine("axbx", "pppp"), SpecReason(), verifier="prm")
    scored = [node for node in solution.graph.nodes() if "prm" in node.scores]
    assert [node.scores["prm"] for node in scored if node.text == "xx;"] == [0.1, 0.1]


def test_it_names_what_it_needs():
    lonely = ScriptedEngine({"policy": writes("a")}, rewards={"prm": lambda text: 0.5})
    with pytest.raises(CapabilityError, match="needs the model 'draft': give --draft"):
        solve(lonely, SpecReason(), verifier="prm")


@pytest.mark.parametrize("tokens", [1, 3, 5, 8, 13, 20])
def test_rejected_steps_count_against_the_budget(tokens: int):
    run = engine("xxxx", "pppp")
    solution = solve(run, SpecReason(), Budget(tokens=tokens), verifier="prm")
    assert solution.usage.tokens <= tokens
    assert solution.graph.tokens_spent == solution.usage.tokens
