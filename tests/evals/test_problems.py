"""The reference tasks as problems: sentences, answer keys, replay."""

import random

import anyio
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.reference.normal_form import normal_form
from branchwise.evals.reference.problems import ArithmeticTask, CountdownTask, ReplayVerifier
from branchwise.evals.reference.source import open_source
from branchwise.evals.reference.tasks import arithmetic, countdown
from branchwise.evals.reference.tasks.trace import split_completion
from branchwise.verifiers.base import Candidate, Score
from branchwise.verifiers.problem import Attempt, Problem, Revisable, Task
from branchwise.verifiers.registry import find_verifier
from hypothesis import given
from hypothesis import strategies as st
from support.candidates import SaidLease


def recognise(text: str) -> CountdownTask | ArithmeticTask:
    task = CountdownTask.recognise(text) or ArithmeticTask.recognise(text)
    assert task is not None
    return task


def check(text: str, answer: str | None, thinking: str = "") -> Score:
    problem = Problem(text=text, task=recognise(text))
    candidate = Candidate(
        problem=problem,
        tokens=(),
        steps=(),
        thinking=thinking,
        conclusion=answer or "",
        answer=answer,
        complete=True,
        lease=SaidLease(),
    )
    return anyio.run(find_verifier("replay", problem).score, candidate)


COUNTDOWN = "Use 3, 7 and 12 to make 43"


@pytest.mark.parametrize(
    ("text", "kind", "prompt"),
    [
        (COUNTDOWN, CountdownTask, "C3,7,12>43:"),
        ("use 12, 7, 3 to make 43.", CountdownTask, "C3,7,12>43:"),
        ("12 + 7*3 - 5", ArithmeticTask, "A12+7*3-5:"),
        ("What is 12 + 7*3 - 5?", ArithmeticTask, "A12+7*3-5:"),
    ],
)
def test_sentences_become_prompts(text: str, kind: type, prompt: str):
    task = recognise(text)
    assert isinstance(task, kind)
    assert isinstance(task, Task)
    assert task.prompt() == prompt


@pytest.mark.parametrize("text", ["Who wrote Faust?", "", "43", "Use the calculator: 3*4"])
def test_other_text_is_not_theirs(text: str):
    assert CountdownTask.recognise(text) is None
    assert ArithmeticTask.recognise(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Use 3, 7 and 99 to make 43", "99"),
        ("Use 3, 7 and 12 to make 430", "430"),
        ("Use 3 and 4.5 to make 7", "4.5"),
        ("12 + 700*3 - 5", "700"),
        ("1 + 2 + 3 + 4 + 5 + 6 + 7", "7"),
        ("(1 + 2) * 3", "(1+2)*3"),
    ],
)
def test_what_the_models_cannot_read_is_refused_in_one_line(text: str, value: str):
    with pytest.raises(UsageError) as caught:
        recognise(text)
    assert value in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_expressions_vote_together():
    task = recognise(COUNTDOWN)
    keys = {task.canonical(answer) for answer in ("12*3+7", "7+3*12", "(12*3)+7", " 7 + (3 * 12) ")}
    assert keys == {"12*3+7"}
    assert task.canonical("12*(3+7)") != "12*3+7"
    assert normal_form("20-(7-3)") == normal_form("(20+3)-7") == normal_form("3-7+20")
    assert normal_form("12/(6/3)") == normal_form("12*3/6")
    assert normal_form("12-3") != normal_form("3-12")


@pytest.mark.parametrize(
    "answer", ["", "12*", "12**3", "-12", "x", "12//3", "f(3)", "1" * 300, "(" * 150, "1 2", "012"]
)
def test_malformed_expressions_have_no_key(answer: str):
    assert recognise(COUNTDOWN).canonical(answer) is None


def test_integers_vote_as_numbers():
    task = recognise("12 + 7*3 - 5")
    assert [task.canonical(text) for text in ("28", "028", " 28", "-0", "-7")] == [
        "28",
        "28",
        "28",
        "0",
        "-7",
    ]
    assert [task.canonical(text) for text in ("", "-", "2.0", "28x", "--2", "²", "9" * 5000)] == [None] * 7


@pytest.mark.pins("reasoning-gym#478")
@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        (COUNTDOWN, "12*3+7", True),
        (COUNTDOWN, "7+(3*12)", True),
        (COUNTDOWN, "12*3", False),
        (COUNTDOWN, "43", False),
        (COUNTDOWN, "12*3+7*1", False),
        (COUNTDOWN, "__import__('os').getcwd()", False),
        ("Use 1, 1, 1 and 20 to make 20", "20*1", False),
        ("Use 2 and 3 to make 1", "3/2", False),
        ("Use 2 and 3 to make 1", "3-2", True),
        ("Use 9, 9 and 1 to make 81", "9*9", False),
    ],
)
def test_countdown_is_checked_exactly(text: str, answer: str, right: bool):
    score = check(text, answer)
    assert (score.value, score.verified) == (float(right), right)


def test_unicode_signs_are_read():
    task = recognise(COUNTDOWN)
    answer = task.extract(" 12×3+7 ")
    assert answer == "12*3+7"
    assert check(COUNTDOWN, answer).verified is True
    assert recognise("2 - 5").extract("−3") == "-3"


def test_no_answer_is_no_verdict():
    assert check(COUNTDOWN, None) == Score(value=None, verified=None, detail="no answer")
    assert recognise(COUNTDOWN).extract("  ") is None


def test_an_illegal_step_is_told_but_the_answer_decides():
    assert check(COUNTDOWN, "12*3+7", thinking="12*3=36>7,36;36+7=43>43;").detail == "right answer"
    score = check(COUNTDOWN, "12*3+7", thinking="12*3=35>7,35;")
    assert score.verified is True
    assert "illegal step" in score.detail


def test_who_is_an_oracle():
    countdown_task, sum_task = recognise(COUNTDOWN), recognise("12 + 7*3 - 5")
    verifier = countdown_task.verifier()
    assert isinstance(verifier, ReplayVerifier)
    assert verifier.sound
    assert not verifier.oracle
    assert sum_task.verifier() is None
    assert find_verifier("replay", Problem(text="12 + 7*3 - 5", task=sum_task)).oracle
    assert check("12 + 7*3 - 5", "28").verified is True
    assert check("12 + 7*3 - 5", "29").verified is False


def test_replay_of_another_problem_is_refused():
    with pytest.raises(UsageError, match="reference tasks only"):
        find_verifier("replay", Problem(text="Who wrote Faust?"))


@given(st.integers(0, 2**32))
def test_training_traces_pass_their_own_replay(seed: int):
    rng = random.Random(seed)
    for task in (countdown, arithmetic):
        instance, trace = task.generate_trace(rng, None)
        thinking, answer = split_completion(trace.completion)
        assert check(task.sentence(instance), answer, thinking).verified is True


def test_the_source_names_the_shipped_folders():
    source = open_source()
    assert source.name == "reference"
    assert source.tasks_only
    assert source.reproducible
    assert source.deterministic
    assert {path.name for path in (source.policy, source.draft, source.prm) if path} == {
        "policy",
        "draft",
        "prm",
    }


@pytest.mark.parametrize("digits", [13, 5000])
@pytest.mark.parametrize(
    "text", ["Use 3, 7 and 12 to make {}", "Use 3, {} and 12 to make 43", "{}+2+3+4", "What is 2*{} - 5 + 1?"]
)
def test_numbers_of_any_length_are_refused_in_one_line(text, digits):
    with pytest.raises(UsageError, match="digits"):
        recognise(text.format("9" * digits))


def attempt(thinking: str) -> Attempt:
    return Attempt(thinking=thinking, conclusion="1", answer="1")


@pytest.mark.parametrize("text", [COUNTDOWN, "12 + 7*3 - 5"])
def test_earlier_attempts_stand_before_the_wait_token_as_in_training(text: str) -> None:
    task = recognise(text)
    assert isinstance(task, Revisable)
    revised = task.revise([attempt("1+2=3>3;"), attempt("2+3=5>5;5-1=4>4;")])
    assert revised == task.prompt() + "1+2=3>3;<wait>2+3=5>5;5-1=4>4;<wait>"


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        ("1+2=3>3;<wait>2*3=6>6;", "2*3=6>6;<wait>"),
        ("1+2=3>3;4*5", "1+2=3>3;<wait>"),
        ("4*5", ""),
        ("", ""),
    ],
)
def test_only_whole_steps_of_an_attempts_last_branch_are_shown(thinking: str, shown: str) -> None:
    task = recognise(COUNTDOWN)
    assert task.revise([attempt(thinking)]) == task.prompt() + shown


def test_a_training_trace_with_a_restart_is_a_revision_of_its_failed_branch() -> None:
    rng = random.Random(4)
    seen = 0
    while seen < 20:
        instance, trace = countdown.generate_trace(rng, None, 4)
        failed, wait, rest = trace.completion.partition("<wait>")
        if wait:
            seen += 1
            revised = CountdownTask(instance).revise([attempt(failed)])
            assert revised + rest == trace.prompt + trace.completion
