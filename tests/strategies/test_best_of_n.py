"""`greedy` and `best_of_n` on the real orchestrator."""

import random

import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.branch import SearchBranch
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason
from branchwise.strategies.base import Search, Step, Strategy
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.chain import Chain
from branchwise.strategies.grammar import format_strategy, parse_strategy
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.vote import Select
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.scripted import PLAIN, ScriptedEngine
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


@pytest.mark.parametrize("select", [rule for rule in Select if rule is not Select.KNOCKOUT])
def test_without_a_verifier_selection_by_score_says_that_it_is_a_majority(select: Select):
    solution = solve(scripted(votes), BestOfN(n=8, select=select))
    told = any("falls back to majority" in note for note in solution.notes)
    assert told == (select in (Select.MAX_SCORE, Select.WEIGHTED_VOTE))


def test_the_score_decides_where_there_is_a_verifier():
    solution = solve(scripted(votes), BestOfN(n=8, select=Select.MAX_SCORE), verifier=LengthVerifier())
    assert not solution.notes
    best = max(solution.candidates, key=lambda candidate: candidate.tokens)
    assert (solution.answer, solution.score) == (best.answer, best.tokens / 100)


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_verifier_that_fails_on_one_of_eight_leaves_it_without_a_score(reproducible: bool):
    class Failing(LengthVerifier):
        async def score(self, candidate: Candidate) -> Score:
            if candidate.branch == "0.2":
                raise RuntimeError("no verdict")
            return await super().score(candidate)

    engine = scripted(votes, pace=uneven)
    solution = solve(engine, BestOfN(n=8), verifier=Failing(), reproducible=reproducible)
    unscored = [candidate.id for candidate in solution.candidates if candidate.score is None]
    assert (len(solution.candidates), unscored) == (8, ["0.2"])
    assert solution.notes == ("verifier length failed: RuntimeError: no verdict",)
    assert (solution.reason, solution.error) == (Reason.EXHAUSTED, None)
    assert engine.live_sequences == 0


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
    solution = solve(scripted(), BestOfN(n=100), Budget(tokens=20))
    assert solution.reason is Reason.BUDGET
    assert solution.usage.tokens == 20
    assert len(concluded) < 20


class Unchecked(Strategy, tag="unchecked", kw_only=True, frozen=True):
    """Offers three samples and asks no verifier; fails where `fails` names its root, before it offers or
    after."""

    fails: str = ""
    offers_first: bool = True

    async def run(self, search: Search) -> None:
        if search.root.id == self.fails and not self.offers_first:
            raise RuntimeError("the inner one failed")
        async with search.each(search.root.fork(3), lambda branch: branch.extend(Until.ANSWER)) as done:
            async for branch in done:
                search.offer(branch)
        if search.root.id == self.fails:
            raise RuntimeError("the inner one failed")

    def selection(self) -> Select:
        return Select.MAJORITY


class Graded(LengthVerifier):
    """Not sound: counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def score(self, candidate: Candidate) -> Score:
        self.asked.append(candidate.branch)
        return await super().score(candidate)


def waiting(text: str, seed: int) -> str:
    """Thinks in steps of `ab;`, two before each end of thinking, and answers the number of its waits."""
    thought, end, said = text[len("Qtask:") :].partition("|")
    if end:
        return f"{thought.count('W')}$"[len(said) :] or "$"
    return "ab;ab;|"[len(thought.rpartition("W")[2])]


def test_an_inner_strategy_finds_each_of_the_solutions():
    engine = ScriptedEngine({"policy": waiting}, pace=uneven)
    solution = solve(engine, BestOfN(n=5, inner=Chain(min_think=13)))
    assert [(c.id, c.answer, c.tokens) for c in solution.candidates] == [
        (f"0.{i}", "1", len("ab;ab;Wab;ab;|1$")) for i in range(5)
    ]
    thoughts = [note for note in solution.graph.notes if note["note"] == "thinking"]
    assert sorted(note["branch"] for note in thoughts) == [f"0.{i}" for i in range(5)]
    assert engine.live_sequences == 0


def test_the_choice_of_an_inner_strategy_is_the_one_candidate_of_its_branch_and_is_checked_once():
    verifier = Graded()
    solution = solve(
        scripted(votes, pace=uneven),
        BestOfN(n=4, select=Select.MAX_SCORE, inner=Unchecked()),
        verifier=verifier,
    )
    lanes = [candidate.id.rpartition(".")[0] for candidate in solution.candidates]
    assert lanes == ["0.0", "0.1", "0.2", "0.3"]
    assert sorted(verifier.asked) == [candidate.id for candidate in solution.candidates]
    assert solution.score == max(candidate.tokens for candidate in solution.candidates) / 100


def test_a_refuted_choice_of_an_inner_strategy_gives_way_to_its_next():
    solution = solve(
        scripted(votes, pace=uneven), BestOfN(n=3, inner=Unchecked()), verifier=DigitVerifier("7")
    )
    assert (solution.reason, solution.answer, solution.verified) == (Reason.SOLVED, "7", True)
    none = solve(scripted(votes), BestOfN(n=3, inner=Unchecked()), verifier=DigitVerifier("1"))
    assert [candidate.verified for candidate in none.candidates] == [False] * 3


def test_a_sound_pass_inside_an_inner_strategy_stops_the_others_unless_told_otherwise():
    def plan(prompt: str, seed: int) -> str:
        return f"{'ab;' * (seed % 7)}|7$"

    first = solve(scripted(plan), BestOfN(n=6, inner=BestOfN(n=2)), verifier=DigitVerifier("7"))
    assert (first.reason, first.answer) == (Reason.SOLVED, "7")
    assert len(first.candidates) < 6
    whole = solve(
        scripted(plan),
        BestOfN(n=6, stop_on_verified=False, inner=BestOfN(n=2)),
        verifier=DigitVerifier("7"),
    )
    assert (whole.reason, len(whole.candidates)) == (Reason.SOLVED, 6)


@pytest.mark.parametrize("offers_first", [True, False])
def test_one_inner_strategy_of_eight_that_fails_leaves_seven_and_what_it_had_offered(offers_first: bool):
    engine = scripted(votes, pace=uneven)
    solution = solve(engine, BestOfN(n=8, inner=Unchecked(fails="0.2", offers_first=offers_first)))
    lanes = [candidate.id.rpartition(".")[0] for candidate in solution.candidates]
    assert lanes == [f"0.{i}" for i in range(8) if offers_first or i != 2]
    assert (solution.reason, solution.error) == (Reason.EXHAUSTED, None)
    assert engine.live_sequences == 0


@settings(max_examples=30, deadline=None)
@given(tokens=st.integers(1, 250), seed=st.integers(0, 50), n=st.integers(1, 8))
@example(tokens=127, seed=0, n=7)  # an answer took the last token of those that still think
def test_inner_strategies_share_one_budget_and_repeat_under_a_seed(tokens: int, seed: int, n: int):
    strategy = BestOfN(n=n, inner=Unchecked() if seed % 2 else Chain(waits=1))
    runs = [scripted(pace=pace) for pace in (uneven, lambda seed, position: 0)]
    slow, fast = (solve(run, strategy, Budget(tokens=tokens), seed=seed) for run in runs)
    assert outside_engine(slow) == outside_engine(fast)
    assert slow.graph.tokens_spent == slow.usage.tokens <= tokens
    assert [run.live_sequences for run in runs] == [0, 0]


@pytest.mark.parametrize("tokens", [40, 60, 100, 200])
def test_a_budget_that_cuts_the_inner_strategies_still_has_an_answer(tokens: int):
    solution = solve(
        ScriptedEngine({"policy": waiting}), BestOfN(n=8, inner=Chain(waits=2)), Budget(tokens=tokens)
    )
    assert solution.answer is not None
    assert solution.usage.tokens <= tokens


def test_needs_and_losslessness_are_those_of_the_inner_strategy():
    assert BestOfN(inner=Beam()).requirements().step_scores
    assert not BestOfN().requirements().step_scores
    assert BestOfN(inner=BestOfN()).is_lossless()
    assert not BestOfN(inner=Chain()).is_lossless()


def test_the_grammar_composes():
    text = "best_of_n(n=8, inner=chain(min_think=256))"
    assert parse_strategy(text) == BestOfN(n=8, inner=Chain(min_think=256))
    assert format_strategy(parse_strategy(text)) == text


def test_what_plain_samples_alone_can_do_is_refused_with_an_inner_strategy():
    with pytest.raises(UsageError, match=r"temperature=0\.5 is that of plain samples"):
        BestOfN(temperature=0.5, inner=Chain())
    with pytest.raises(UsageError, match="say how many, such as n=8"):
        BestOfN(n=None, inner=Chain())


def test_fewer_at_a_time_give_the_same_samples_and_stop_earlier():
    whole = solve(scripted(pace=uneven), BestOfN(n=12, stop_on_verified=False), verifier=DigitVerifier("3"))
    for parallel in (1, 5, 12):
        strategy = BestOfN(n=12, parallel=parallel, stop_on_verified=False)
        assert solve(scripted(), strategy, verifier=DigitVerifier("3")).candidates == whole.candidates
    spent = [
        solve(scripted(), BestOfN(n=40, parallel=parallel), verifier=DigitVerifier("3")).usage.tokens
        for parallel in (1, 8, None)
    ]
    assert spent == sorted(spent)
    assert spent[0] < spent[-1] / 2
