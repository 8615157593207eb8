"""`rsd`: the mixture of draft and policy by reward, as the paper states its law."""

import random

import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.strategies.rsd import Mixing, RewardGuidedSpeculation, mixing_weight
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.scripted import ScriptedEngine
from support.searching import PROMPT_LENGTH, solve, uneven
from support.stepping import drafting, last_step, writes

STEPS = 25
SEEDS = 14
DRAFT = {"a": 0.5, "b": 0.3, "c": 0.2}
POLICY = {"a": 0.2, "b": 0.2, "c": 0.6}
REWARD = {"a": 0.9, "b": 0.4, "c": 0.7}


def draws(law: dict[str, float]):
    """A model whose each step is one letter drawn from `law`, anew at each position and seed."""

    def script(text: str, seed: int) -> str:
        thought, end, said = text[PROMPT_LENGTH:].partition("|")
        if end:
            return "9$"[len(said) :] or "$"
        if thought and not thought.endswith(";"):
            return ";"
        if thought.count(";") >= STEPS:
            return "|"
        return random.Random(f"{len(thought)} {seed}").choices(list(law), list(law.values()))[0]

    return script


def mixture() -> ScriptedEngine:
    return ScriptedEngine(
        {"policy": draws(POLICY), "draft": draws(DRAFT)},
        rewards={"prm": lambda text: REWARD.get(last_step(text), 0.0)},
        max_model_len=4000,
    )


@pytest.mark.parametrize(
    ("mixing", "weights"),
    [
        (Mixing.STEP, {0.69: 0.0, 0.7: 1.0, 1.0: 1.0}),
        (Mixing.CLIP, {0.0: 0.0, 0.25: 0.25, 1.0: 1.0}),
        (Mixing.CONSTANT, {0.0: 0.7, 1.0: 0.7}),
        (Mixing.LOGISTIC, {0.7: 0.5, 0.9: 0.8807970779778823, 0.5: 0.11920292202211769}),
    ],
)
def test_weighting_functions(mixing: Mixing, weights: dict[float, float]):
    for reward, weight in weights.items():
        assert mixing_weight(mixing, reward, 0.7, 10.0) == pytest.approx(weight)


@pytest.mark.parametrize("mixing", Mixing)
def test_steps_follow_the_mixture_of_draft_and_policy(mixing: Mixing):
    strategy = RewardGuidedSpeculation(mixing=mixing, delta=0.7, patience=100)
    engine, counts = mixture(), dict.fromkeys(REWARD, 0)
    for seed in range(SEEDS):
        for letter in solve(engine, strategy, seed=seed).text.partition("|")[0].split(";")[:-1]:
            counts[letter] += 1
    omega = {letter: mixing_weight(mixing, reward, 0.7, 10.0) for letter, reward in REWARD.items()}
    rejected = 1 - sum(DRAFT[letter] * omega[letter] for letter in REWARD)
    law = {letter: omega[letter] * DRAFT[letter] + rejected * POLICY[letter] for letter in REWARD}
    total = sum(counts.values())
    assert total == SEEDS * STEPS
    assert chisquare([counts[x] for x in law], [total * law[x] for x in law]).pvalue > 1e-3


def test_the_first_step_is_drafted_and_rejected_ones_rewritten():
    solution = solve(drafting("xaxb", "pppp"), RewardGuidedSpeculation())
    assert solution.text == "pp;aa;pp;bb;|9$"
    note = next(note for note in solution.graph.notes if note["note"].startswith("drafts"))
    assert [draft["step"] for draft in note["drafts"] if draft["accepted"]] == [1, 3]


def test_a_hundred_steps_are_the_most():
    letters = "ab" * 80
    engine = drafting(letters, letters, max_model_len=4000)
    assert solve(engine, RewardGuidedSpeculation()).text == "aa;bb;" * 50 + "|9$"


def test_drawn_verdicts_depend_on_the_seed_alone():
    strategy = RewardGuidedSpeculation(mixing=Mixing.CONSTANT, delta=0.5)
    texts = {seed: solve(drafting("abab", "pqpq"), strategy, seed=seed).text for seed in range(6)}
    assert len(set(texts.values())) > 1
    assert texts == {seed: solve(drafting("abab", "pqpq"), strategy, seed=seed).text for seed in texts}


def test_names_and_ranges():
    assert RewardGuidedSpeculation.__struct_config__.tag == "rsd"
    assert not RewardGuidedSpeculation().is_lossless()
    with pytest.raises(UsageError, match=r"strategy rsd: delta=1.5: give 0 to 1"):
        RewardGuidedSpeculation(delta=1.5)
    with pytest.raises(CapabilityError, match="strategy rsd needs the model 'draft'"):
        solve(
            ScriptedEngine({"policy": writes("a")}, rewards={"prm": lambda text: 0.5}),
            RewardGuidedSpeculation(),
        )


@settings(max_examples=15, deadline=None)
@given(
    draft=st.text("abx", min_size=1, max_size=8),
    tokens=st.integers(1, 60),
    mixing=st.sampled_from(Mixing),
    fail_at=st.none() | st.integers(0, 40),
    seed=st.integers(0, 99),
)
def test_the_books_balance_whatever_ends_it(draft, tokens, mixing, fail_at, seed):
    run = drafting(draft, "pqpqpqpq", fail_at=fail_at, pace=uneven)
    solution = solve(run, RewardGuidedSpeculation(mixing=mixing), Budget(tokens=tokens), seed=seed)
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.graph.tokens_spent == solution.usage.tokens == run.tokens_sampled + forced <= tokens
    assert solution.graph.flops_spent == solution.usage.flops
    assert run.live_sequences == 0
