"""Adaptive choice: the probe is charged and reused, the table decides, the trace says what and why."""

import os
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.adaptive import Adaptive
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.choice_table import (
    SHIPPED,
    Band,
    Choice,
    ChoiceTable,
    agreement,
    load_table,
    mean_score,
    situation,
)
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.vote import Select
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import ScriptedEngine, following
from support.searching import PROMPT_LENGTH, DigitVerifier, scripted, solve, uneven


def choice(strategy: str) -> Choice:
    return Choice(strategy=strategy, accuracy=0.5, problems=40)


def written(folder: Path, *bands: Band, case: str = "none", weights: str = "") -> str:
    table = ChoiceTable(model="scripted", suite="test", weights_digest=weights, bands={case: bands})
    path = folder / "table.json"
    path.write_bytes(msgspec.json.encode(table))
    return str(path)


def halves(tokens: int = 1000) -> Band:
    return Band(tokens=tokens, probe=4, edges=(0.75,), choices=(choice("best_of_n(n=3)"), choice("greedy")))


def agreeing(prompt: str, seed: int) -> str:
    return "ab;|7$"


def told(solution: Solution) -> str:
    return " / ".join(solution.notes)


def test_a_probe_that_agrees_finds_an_easy_problem(tmp_path: Path):
    engine = ScriptedEngine({"policy": following(agreeing, PROMPT_LENGTH)})
    solution = solve(engine, Adaptive(table=written(tmp_path, halves())))
    assert "chose greedy: a probe of 4 shows agreement 1.000, bin 2 of 2" in told(solution)
    assert "solved 0.500 of 40 such of test" in told(solution)
    assert solution.usage.tokens == 5 * 6 == engine.tokens_sampled


def test_a_probe_that_scatters_finds_a_hard_one_and_its_samples_stay_candidates(tmp_path: Path):
    solution = solve(scripted(pace=uneven), Adaptive(table=written(tmp_path, halves())), seed=4)
    assert "chose best_of_n(n=3): a probe of 4 shows agreement" in told(solution)
    assert len(solution.candidates) == 4 + 3
    assert solution.graph.tokens_spent == solution.usage.tokens


@pytest.mark.parametrize(("weights", "warned"), [("", False), ("of another", True)])
def test_a_table_of_other_weights_is_used_and_says_so(tmp_path: Path, weights: str, warned: bool):
    solution = solve(scripted(), Adaptive(table=written(tmp_path, halves(), weights=weights)))
    assert ("fitted on scripted, whose weights are not the policy's" in told(solution)) is warned
    assert "adaptive: chose" in told(solution)


def test_the_chosen_strategys_rule_chooses_among_all(tmp_path: Path):
    band = Band(tokens=100, probe=3, choices=(choice("best_of_n(n=2, select=mean_logprob)"),))
    assert Adaptive().selection() is Select.WEIGHTED_VOTE
    solution = solve(scripted(), Adaptive(table=written(tmp_path, band)))
    assert solution.candidates[0].answer == solution.answer


def test_the_band_is_the_nearest_by_ratio_to_what_is_left():
    table = ChoiceTable(model="m", suite="s", bands={"none": (halves(100), halves(1000), halves(10_000))})
    assert [table.band("none", left).tokens for left in (1, 300, 320, 3000, 10**9, None)] == [
        100, 100, 1000, 1000, 10_000, 10_000,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="fitted for none, not for sound"):
        table.band("sound", 10)


def test_a_sound_pass_in_the_probe_ends_the_search(tmp_path: Path):
    engine = ScriptedEngine({"policy": following(agreeing, PROMPT_LENGTH)})
    table = written(tmp_path, halves(), case="sound")
    solution = solve(engine, Adaptive(table=table), verifier=DigitVerifier("7"))
    assert solution.reason is Reason.SOLVED
    assert "chose" not in told(solution)
    assert solution.graph.notes == [{"note": Adaptive.BEGUN, "case": "sound"}]


class Undecided(DigitVerifier):
    """A last check that can never tell."""

    async def score(self, candidate: Candidate) -> Score:
        return Score(detail="cannot tell")


def test_where_the_last_check_cannot_tell_the_samples_keep_their_step_score():
    def scripted_with_prm() -> ScriptedEngine:
        policy = following(agreeing, PROMPT_LENGTH)
        return ScriptedEngine({"policy": policy}, rewards={"prm": lambda text: 0.5})

    arm = Adaptive(probe=3, arm=BestOfN(n=1))
    solution = solve(scripted_with_prm(), arm, verifier=Undecided("7"))
    (note,) = [note for note in solution.graph.notes if note["note"] == Adaptive.PROBED]
    assert note["score"] == 0.5
    assert [candidate.score for candidate in solution.candidates[:3]] == [0.5] * 3
    read_once = solve(scripted_with_prm(), arm, verifier="prm").usage.scored_tokens
    assert solution.usage.scored_tokens == read_once * 3 // 4


def test_an_arm_runs_whatever_the_probe_shows():
    solution = solve(scripted(), Adaptive(probe=2, arm=BestOfN(n=5)))
    assert len(solution.candidates) == 7
    (note,) = [note for note in solution.graph.notes if note["note"] == Adaptive.PROBED]
    assert (note["samples"], note["score"]) == (2, None)
    assert 0.5 <= note["agreement"] <= 1.0


@settings(max_examples=30)
@given(tokens=st.integers(1, 300), probe=st.integers(0, 9), seed=st.integers(0, 99))
def test_the_probe_is_part_of_the_budget(tokens: int, probe: int, seed: int):
    engine = scripted(pace=uneven)
    solution = solve(engine, Adaptive(probe=probe, arm=BestOfN(n=4)), Budget(tokens=tokens), seed=seed)
    assert solution.usage.tokens <= tokens
    assert solution.graph.tokens_spent == solution.usage.tokens
    assert engine.live_sequences == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "truncated"),
        ("{}", "missing required field"),
        ('{"model": "m", "suite": "s", "bands": {}}', "has no bands"),
        (
            '{"model":"m","suite":"s","bands":{"none":[{"tokens":9,"choices":'
            '[{"strategy":"gredy","accuracy":0.5,"problems":9}]}]}}',
            "table.json: none at 9 tokens: strategy 'gredy': not known; did you mean greedy",
        ),
        ('{"model": "m", "suite": "s", "bands": {"none": []}}', "length"),
        (
            '{"model":"m","suite":"s","bands":{"none":[{"tokens":9,"probe":4,"edges":[0.5],"choices":'
            '[{"strategy":"greedy","accuracy":0.5,"problems":9}]}]}}',
            "1 choices for 1 edges: give one more",
        ),
    ],
)
def test_a_bad_table_is_one_line(tmp_path: Path, text: str, said: str):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_table(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_table(tmp_path / "absent.json")


@pytest.mark.parametrize("nested", ["adaptive", "portfolio(members=[greedy, adaptive(probe=2)])"])
def test_a_table_that_chooses_by_a_table_is_refused(tmp_path: Path, nested: str):
    path = written(tmp_path, Band(tokens=9, choices=(choice(nested),)))
    with pytest.raises(UsageError, match="would choose by a table again: give it an arm"):
        solve(scripted(), Adaptive(table=path))


def test_what_is_no_file_is_no_table(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, said in ((tmp_path, "is no file"), (pipe, "is no file"), (Path("a\0b"), "null")):
        with pytest.raises(UsageError, match=f"^choice table .*{said}.*; make one with branchwise"):
            load_table(path)
    with pytest.raises(UsageError, match="table='': give 1 or more characters"):
        Adaptive(table="")


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("scores_steps", [True, False])
def test_the_shipped_table_has_a_choice_for_every_situation(sound: bool, scores_steps: bool):
    table = load_table(SHIPPED)
    case = situation(sound=sound, scores_steps=scores_steps)
    for band in table.bands[case]:
        assert band.choices
    assert table.strategies()


def test_signals_of_nothing_are_none_and_abstentions_agree_with_nobody():
    assert agreement([]) is None
    assert agreement([None, None]) == 0.0
    assert agreement(["a", None, "a", "b"]) == 0.5
    assert mean_score([None, 0.25, 0.75]) == 0.5
    assert mean_score([None]) is None
