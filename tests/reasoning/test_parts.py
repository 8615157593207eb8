"""What a strategy needs that writes in parts and by several models: whole steps to conclude behind, the KV
that is left, and noise of its own for each model."""

import pytest
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.strategies.base import Needs, Search, Strategy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, scripted, solve


class Parts(Strategy, tag="parts", kw_only=True, frozen=True):
    """One chain, extended by so many tokens at a time, then concluded."""

    sizes: tuple[int, ...]

    async def run(self, search: Search) -> None:
        branch = search.root
        for size in self.sizes:
            await branch.extend(Until.ANSWER, max_tokens=size)
        await branch.conclude()
        search.offer(branch)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=8))
def test_a_chain_in_parts_concludes_behind_its_last_whole_step(sizes):
    def script(text: str, seed: int) -> str:
        thought, end, said = text[PROMPT_LENGTH:].partition("|")
        return ("5$"[len(said) :] or "$") if end else "abc;"[len(thought) % 4]

    solution = solve(ScriptedEngine({"policy": script}), Parts(sizes=tuple(sizes)))
    assert solution.text == "abc;" * (sum(sizes) // 4) + "|5$"
    assert solution.graph.tokens_spent == solution.usage.tokens == sum(sizes) + 3


class ScoresParts(Strategy, tag="scores_parts", kw_only=True, frozen=True):
    """One chain in parts of so many tokens, scored after each."""

    size: int
    needs = Needs(step_scores=True)

    async def run(self, search: Search) -> None:
        branch = search.root
        while not branch.complete:
            await branch.extend(Until.ANSWER, max_tokens=self.size)
            score = await branch.evaluate(search.step_verifier)
            search.note("scored", steps=len(score.steps), marks=branch.text.count(";"))
        search.offer(branch)


@pytest.mark.parametrize("size", range(1, 9))
def test_every_step_is_scored_wherever_the_parts_are_cut(size: int):
    engine = ScriptedEngine(
        {"policy": following(lambda p, s: "abc;de;f;|1$", PROMPT_LENGTH)}, rewards={"prm": lambda text: 0.5}
    )
    notes = solve(engine, ScoresParts(size=size)).graph.notes
    assert [note["steps"] for note in notes] == [note["marks"] for note in notes]


class WatchesKv(Strategy, tag="watches_kv", kw_only=True, frozen=True):
    """Notes the KV owned and left as branches fork, write and go."""

    async def run(self, search: Search) -> None:
        def look(when: str) -> None:
            search.note(when, owned=search.budget.kv_owned, left=search.budget.kv_left)

        first, second = search.root.fork(2)
        look("forked")
        await first.extend(Until.STEP, max_tokens=5)
        await second.extend(Until.STEP, max_tokens=4)
        look("written")
        second.prune("seen")
        look("pruned")
        search.offer(first)


def test_the_kv_owned_and_left_follow_the_branches():
    for cap in (None, 40):
        solution = solve(scripted(lambda p, s: "abcdefgh;|1$"), WatchesKv(), Budget(kv_tokens=cap))
        seen = [(note["owned"], note["left"]) for note in solution.graph.notes]
        owned = [PROMPT_LENGTH, PROMPT_LENGTH + 9, PROMPT_LENGTH + 5]
        assert seen == [(count, None if cap is None else cap - count) for count in owned]


class TwoModels(Strategy, tag="two_models", kw_only=True, frozen=True):
    """The same position by the draft model and, after a truncation, by the policy; on the root and a fork."""

    async def run(self, search: Search) -> None:
        for branch in (search.root, *search.root.fork(2)):
            step = await branch.extend(Until.STEP, model="draft")
            branch.truncate(0)
            again = await branch.extend(Until.STEP)
            search.note(branch.id, draft=step.text, policy=again.text)
            branch.truncate(0)


def test_each_model_draws_noise_of_its_own_on_a_branch():
    def plan(prompt: str, seed: int) -> str:
        return f"{seed:x};"

    def run(seed: int) -> list[str]:
        script = following(plan, PROMPT_LENGTH)
        solution = solve(ScriptedEngine({"policy": script, "draft": script}), TwoModels(), seed=seed)
        return [note[model] for note in solution.graph.notes for model in ("draft", "policy")]

    seeds = run(1)
    assert len(set(seeds)) == len(seeds) == 6
    assert run(1) == seeds
