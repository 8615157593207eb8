"""What a judge asks, and what it makes of the probabilities of the answers."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.text.tokenizer import Message
from branchwise.verifiers.base import Score
from branchwise.verifiers.judge import JudgeVerifier, Mode, Role, expected_digit
from branchwise.verifiers.judge_prompts import BUILT_IN, filled, read_prompts
from branchwise.verifiers.problem import Problem
from support.candidates import SaidLease, candidate


def says(*probabilities: float, texts: Sequence[str | None] = ()) -> SaidLease:
    return SaidLease(lambda prompt, options: probabilities, texts)


def score(judge: JudgeVerifier, lease: SaidLease, text: str = "the work") -> Score:
    return anyio.run(judge.score, candidate(text, lease=lease))


def test_the_verdict_is_yes_against_no() -> None:
    lease = says(0.3, 0.1)
    assert score(JudgeVerifier(), lease).value == pytest.approx(0.75)
    [prompt] = lease.prompts
    assert "the problem" in prompt
    assert "the work" in prompt
    assert lease.models == ["judge"]


@pytest.mark.parametrize("mode", [Mode.VERDICT, Mode.PAIRWISE])
def test_a_judge_reads_the_earlier_turns(mode: Mode) -> None:
    lease = says(0.3, 0.1)
    turns = (Message("user", "What is 2 + 2?"), Message("assistant", "4"))
    asked = msgspec.structs.replace(
        candidate("the work", lease=lease), problem=Problem(text="And doubled?", messages=turns)
    )
    judge = JudgeVerifier(mode)
    if mode is Mode.PAIRWISE:
        anyio.run(judge.prefer, asked, asked)
    else:
        anyio.run(judge.score, asked)
    assert all("user: What is 2 + 2?\n\nassistant: 4\n\nAnd doubled?" in text for text in lease.prompts)
    assert lease.prompts


def test_a_model_that_answers_something_else_gives_no_verdict() -> None:
    for mode in (Mode.VERDICT, Mode.SCORE):
        told = score(JudgeVerifier(mode), says(*[0.0005] * 10))
        assert told.value is None
        assert "of the probability" in told.detail
    assert score(JudgeVerifier(floor=0.0), says(1e-6, 3e-6)).value == pytest.approx(0.25)
    assert score(JudgeVerifier(floor=0.0), says(0.0, 0.0)).value is None


def test_critiques_are_read_before_their_verdicts_and_averaged() -> None:
    lease = SaidLease(
        lambda prompt, options: (0.9, 0.1) if "all right" in prompt else (0.2, 0.2), ["all right", "odd"]
    )
    told = score(JudgeVerifier(Mode.CRITIQUE, critiques=2, model=Role.POLICY), lease)
    assert told.value == pytest.approx((0.9 + 0.5) / 2)
    assert [("all right" in prompt, "odd" in prompt) for prompt in lease.prompts] == [
        (False, False),
        (True, False),
        (False, False),
        (False, True),
    ]
    assert set(lease.models) == {"policy"}


@pytest.mark.parametrize("texts", [[None], ["one", None]])
def test_a_budget_that_ends_between_critiques_gives_no_mean_of_some(texts: list[str | None]) -> None:
    told = score(JudgeVerifier(Mode.CRITIQUE, critiques=2), says(0.5, 0.5, texts=texts))
    assert told == Score(detail="budget")


def test_a_digit_is_weighted_by_its_probability() -> None:
    spread = [0.0] * 10
    spread[9], spread[6] = 0.2, 0.6
    assert score(JudgeVerifier(Mode.SCORE), says(*spread)).value == pytest.approx((9 * 0.25 + 6 * 0.75) / 9)
    assert expected_digit([0.1] * 10) == pytest.approx(0.5)
    assert expected_digit([0.0] * 9 + [1.0]) == 1.0


def test_refused_questions_have_no_score() -> None:
    for mode in (Mode.VERDICT, Mode.SCORE):
        assert score(JudgeVerifier(mode), SaidLease(lambda prompt, options: None)) == Score(detail="budget")


def test_nothing_is_not_judged() -> None:
    lease = says(1.0, 0.0)
    assert score(JudgeVerifier(), lease, "").value is None
    assert lease.prompts == []


def test_a_preference_for_a_place_cancels() -> None:
    first, second = (candidate(text, lease=says(0.8, 0.2)) for text in ("one", "two"))
    assert anyio.run(JudgeVerifier(Mode.PAIRWISE).prefer, first, second) == pytest.approx(0.5)


def test_the_better_one_is_preferred_in_both_orders() -> None:
    def better(prompt: str, options: Sequence[str]) -> tuple[float, float]:
        return (0.9, 0.1) if prompt.index("good") < prompt.index("bad") else (0.3, 0.7)

    good, bad = (candidate(text, lease=SaidLease(better)) for text in ("good", "bad"))
    judge = JudgeVerifier(Mode.PAIRWISE)
    assert anyio.run(judge.prefer, good, bad) == pytest.approx(0.8)
    assert anyio.run(judge.prefer, bad, good) == pytest.approx(0.2)
    assert anyio.run(judge.score, good).value is None


def test_half_a_comparison_is_none() -> None:
    answers = iter([(0.9, 0.1), None])
    first, second = (
        candidate(text, lease=SaidLease(lambda prompt, options: next(answers))) for text in ("one", "two")
    )
    assert anyio.run(JudgeVerifier(Mode.PAIRWISE).prefer, first, second) is None


def test_a_judge_never_verifies() -> None:
    assert not JudgeVerifier.sound
    assert not JudgeVerifier.oracle
    assert score(JudgeVerifier(), says(1.0, 0.0)).verified is None
    assert JudgeVerifier(model=Role.DRAFT).models == ("draft",)
    assert JudgeVerifier().asks == ("judge",)


def test_places_in_a_value_stay_what_they_are() -> None:
    text = filled(r"\frac{1}{2} {problem} | {solution}", problem="{solution} {first}", solution="S")
    assert text == r"\frac{1}{2} {solution} {first} | S"


def test_a_file_replaces_some_of_the_texts(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('verdict = "Q {problem} A {solution}?"\nyes = "Right"\n')
    prompts = read_prompts(str(path))
    assert (prompts.yes, prompts.no, prompts.score) == ("Right", "No", BUILT_IN.score)
    lease = says(0.5, 0.5)
    score(JudgeVerifier(template=str(path)), lease)
    assert lease.prompts == ["Q the problem A the work?"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot be read (No such file or directory); give a TOML file"),
        ("verdict = ", "is not TOML ("),
        (
            'verdit = "{problem} {solution}"',
            "'verdit' is no text of a judge; did you mean verdict? there are: ",
        ),
        ('verdict = "{problem}"', "verdict has no place {solution}; write it where the solution goes"),
        ("score = 3", "score=3: give a text"),
        ('yes = "No"', "yes and no, and one and two, must be different words"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, content: str | None, line: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError) as caught:
        JudgeVerifier(template=str(path))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
