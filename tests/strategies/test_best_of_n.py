"""`greedy` and `best_of_n` on the real orchestrator."""

import random

import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.branch import SearchBranch
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Step
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.vote import Select
from support.scripted import PLAIN
from support.searching import DigitVerifier, outside_engine, scripted, solve, uneven


def votes(prompt: str, seed: int) -> str:
    """Half of the branches answer 7, the others each something else."""
    rng = random.Random(seed)
    return f"{rng.choice('ab') * rng.randint(1, 6)};|{7 if rng.random() < 0.5 else rng.randint(10, 99)}$"


class LengthVerifier:
    """Not sound: longer is better."""

    name = "length"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=len(candidate.tokens) / 100)


def test_greedy_is_one_chain():
    solution = solve(scripted(votes), Greedy())
    assert [candidate.id for candidate in solution.candidates] == ["0"]
    assert solution.reason is Reason.EXHAUSTED
    assert solution.answer is not None
    assert solution.strategy == {"type": "greedy"}


def test_all_samples_are_candidates_and_the_majority_wins():
    solution = solve(scripted(votes, pace=uneven), BestOfN(n=12))
    assert [candidate.id for candidate in solution.candidates] == [f"0.{i}" for i in range(12)]
    assert solution.answer == "7"
    assert solution.reason is Reason.EXHAUSTED


@pytest.mark.parametrize("select", Select)
def test_without_a_verifier_selection_by_score_says_that_it_is_a_majority(select: Select):
    solution = solve(scripted(votes), BestOfN(n=8, select=select))
    told = any("falls back to majority" in note for note in solution.notes)
    assert told == (select in (Select.MAX_SCORE, Select.WEIGHTED_VOTE))


def test_the_score_decides_where_there_is_a_verifier():
    solution = solve(scripted(votes), BestOfN(n=8, select=Select.MAX_SCORE), verifier=LengthVerifier())
    assert not solution.notes
    best = max(solution.candidates, key=lambda candidate: candidate.tokens)
    assert (solution.answer, solution.score) == (best.answer, best.tokens / 100)


def test_a_sound_pass_ends_the_search_unless_told_otherwise():
    first = solve(scripted(votes, pace=uneven), BestOfN(n=12), verifier=DigitVerifier("7"))
    assert (first.reason, first.answer, first.verified) == (Reason.SOLVED, "7", True)
    assert len(first.candidates) < 12
    whole = solve(
        scripted(votes, pace=uneven), BestOfN(n=12, stop_on_verified=False), verifier=DigitVerifier("7")
    )
    assert (whole.reason, whole.answer, len(whole.candidates)) == (Reason.SOLVED, "7", 12)


def test_n_none_takes_what_the_budget_allows():
    solution = solve(scripted(votes), BestOfN(n=None), Budget(tokens=200))
    assert len(solution.candidates) > 4
    assert solution.usage.tokens <= 200


def test_a_temperature_is_passed_on_and_none_leaves_the_models_own():
    seen = []

    class Recording(type(scripted())):
        async def extend(self, seq, params, meter, on_tokens=None):
            seen.append(params.sampling.temperature)
            return await super().extend(seq, params, meter, on_tokens)

    for strategy, temperature in (
        (BestOfN(n=2, temperature=0.25), 0.25),
        (BestOfN(n=2), 1.0),
        (Greedy(), 0.0),
    ):
        seen.clear()
        solve(Recording({"policy": lambda text, seed: "1$" if "|" in text else "|"}), strategy)
        assert set(seen) == {temperature}


def answers_when_told(text: str, seed: int) -> str:
    """Thinks without end; after the end of thinking it answers 5."""
    thought, end, said = text.partition("|")
    return ("5$"[len(said) :] or "$") if end else "ab;"[(len(thought) - len("Qtask:")) % 3]


@pytest.mark.pins("simplescaling/s1#53")
@pytest.mark.parametrize("strategy", [Greedy(), BestOfN(n=1), BestOfN(n=5)])
@pytest.mark.parametrize("tokens", [8, 24, 40, 100])
def test_cut_thinking_still_answers_out_of_the_reserve(strategy: Greedy | BestOfN, tokens: int):
    engine = scripted()
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, strategy, Budget(tokens=tokens, answer_reserve=4))
    assert solution.answer == "5"
    assert solution.usage.tokens <= tokens
    assert engine.live_sequences == 0


def test_the_longest_thinking_concludes_first():
    engine = scripted(pace=uneven)
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, BestOfN(n=6), Budget(tokens=60, answer_reserve=3))
    answered = [candidate for candidate in solution.candidates if candidate.answer is not None]
    assert answered
    assert max(c.tokens for c in solution.candidates) == max(c.tokens for c in answered)


def test_a_scarce_budget_finishes_candidates_instead_of_starting_more():
    solution = solve(scripted(votes), BestOfN(n=64), Budget(tokens=120))
    assert sum(candidate.complete for candidate in solution.candidates) >= 6
    assert solution.usage.tokens <= 120


def test_length_cut_samples_are_concluded():
    engine = scripted()
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, BestOfN(n=3), Budget(tokens=1000), max_tokens=9)
    assert [candidate.answer for candidate in solution.candidates] == ["5", "5", "5"]
    assert all(candidate.complete for candidate in solution.candidates)


def test_a_full_context_is_no_failure():
    engine = scripted(max_model_len=40)
    engine._scripts["policy"] = answers_when_told
    solution = solve(engine, BestOfN(n=3), Budget(tokens=1000))
    assert solution.reason is Reason.EXHAUSTED
    assert solution.error is None


def test_a_model_without_thinking():
    solution = solve(
        scripted(lambda prompt, seed: f"the answer is {seed % 2}.$", profile=PLAIN), BestOfN(n=9)
    )
    assert solution.answer in ("0", "1")
    assert all(candidate.complete for candidate in solution.candidates)


@pytest.mark.parametrize("tokens", [1, 7, 50, 333])
def test_the_same_seed_gives_the_same_solution_at_any_speed(tokens: int):
    slow, fast = (
        solve(scripted(votes, pace=pace), BestOfN(n=16), Budget(tokens=tokens), seed=3)
        for pace in (uneven, lambda seed, position: 0)
    )
    assert outside_engine(slow) == outside_engine(fast)
    assert slow.usage.tokens <= tokens


def test_n_without_end_needs_a_token_budget():
    with pytest.raises(UsageError, match="budget of tokens"):
        solve(scripted(votes), BestOfN(n=None), Budget(seconds=5))


def test_branches_that_the_budget_never_started_are_not_concluded(monkeypatch: pytest.MonkeyPatch) -> None:
    concluded: list[int] = []
    conclude = SearchBranch.conclude

    async def counted(branch: SearchBranch, *, max_tokens: int | None = None) -> Step:
        concluded.append(len(branch.tokens))
        return await conclude(branch, max_tokens=max_tokens)

    monkeypatch.setattr(SearchBranch, "conclude", counted)
    solution = solve(scripted(), BestOfN(n=300), Budget(tokens=20))
    assert solution.reason is Reason.BUDGET
    assert solution.usage.tokens == 20
    assert len(concluded) < 20
