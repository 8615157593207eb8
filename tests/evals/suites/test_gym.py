"""reasoning-gym: only a score of exactly 1 counts, and scorers run where they can do no harm."""

import contextlib
import importlib.util
from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.suites import gym
from branchwise.evals.suites.base import Gold, Sample, read_answer
from branchwise.evals.suites.registry import open_suite
from branchwise.verifiers import sandbox as sandbox_module
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.worker import Worker, WorkerFailed

if importlib.util.find_spec("reasoning_gym") is None:
    pytest.skip("reasoning-gym is not installed (extra evals)", allow_module_level=True)


def test_samples_depend_on_task_and_seed_and_their_golds_are_right():
    suite = open_suite("reasoning_gym:chain_sum")
    samples = suite.samples(8, 1)
    assert list(samples) == list(suite.samples(20, 1))[:8]
    assert samples != suite.samples(8, 2)
    assert samples[0].problem.endswith("Give the final answer between <answer> and </answer>.")
    assert all(suite.grade(sample, sample.gold.value, "").correct for sample in samples)
    tagged = f"so <answer>{samples[0].gold.value}</answer>"
    assert suite.grade(samples[0], read_answer(samples[0], tagged), tagged).correct is True
    assert suite.grade(samples[0], None, tagged).correct is False


def test_partial_credit_is_not_a_pass():
    suite = open_suite("reasoning_gym:chain_sum")
    for sample in suite.samples(8, 0):
        for answer in (f"The answer is {sample.gold.value}", f"1{sample.gold.value}8"):
            grade = suite.grade(sample, answer, "")
            assert grade.correct is False
            assert grade.reason.startswith("score 0.")


def test_a_scorer_that_raises_on_text_refuses_it():
    suite = open_suite("reasoning_gym:prime_factorization")
    [sample] = suite.samples(1, 0)
    grade = suite.grade(sample, "I do not know", "")
    assert (grade.correct, grade.reason) == (False, "the scorer refused it (ValueError)")
    assert suite.grade(sample, sample.gold.value, "").correct is True


@pytest.mark.pins("reasoning-gym#478")
@pytest.mark.pins("reasoning-gym#265")
@pytest.mark.parametrize("confined", [True, False])
def test_an_answer_is_never_run(confined: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if not confined:
        monkeypatch.setattr(sandbox_module, "sandbox_fault", lambda: "none here")
    monkeypatch.setattr(gym, "_workers", [])
    suite = open_suite("reasoning_gym:countdown")
    [sample] = suite.samples(1, 0)
    mark = tmp_path / "mark"
    for answer in (
        f"__import__('os').system('touch {mark}')",
        f"open('{mark}', 'w').write('x')",
        f"__import__('pathlib').Path('{mark}').touch()",
        f"__import__('subprocess').run(['touch', '{mark}'])",
    ):
        assert suite.grade(sample, answer, "").correct is not True
        assert not mark.exists()
    assert suite.grade(sample, sample.gold.value, "").correct is True
    for worker in gym._workers:
        worker.close()


def test_the_guard_refuses_without_a_sandbox_too(tmp_path: Path):
    """What the scorer's process does on its own when no sandbox is around it."""
    worker = Worker("branchwise.evals.suites.gym_worker:answer")
    mark = tmp_path / "mark"
    text = f"[x for x in [open('{mark}', 'w')]]"
    with contextlib.suppress(WorkerFailed):
        assert worker.call("score", "countdown", 0, 0, text, timeout_s=60) < 1
    assert not mark.exists()
    worker.close()


def test_a_scorer_that_hangs_or_dies_cannot_tell(monkeypatch: pytest.MonkeyPatch):
    sample = Sample(id="x", problem="", gold=Gold(AnswerType.STRING, "1"), meta={"seed": "0", "place": "0"})
    suite = gym.GymSuite("reasoning_gym:x", "x")
    monkeypatch.setattr(gym, "SCORE_S", 0.3)
    monkeypatch.setattr(gym, "_workers", [Worker("tests_support_none:x")])
    assert suite.grade(sample, "1", "").correct is None
    monkeypatch.setattr(gym, "_worker", lambda: Hanging())
    grade = suite.grade(sample, "1", "")
    assert grade.correct is None
    assert "no answer within 0.3 s" in grade.reason


class Hanging:
    """A worker whose function sleeps, whatever it is asked."""

    def call(self, *arguments: object, timeout_s: float, cpu_s: int) -> object:
        return Worker("time:sleep").call(60, timeout_s=timeout_s)


def test_unknown_tasks_and_limits_beyond_a_seed_are_one_line():
    with pytest.raises(
        UsageError, match=r"^reasoning-gym task 'chain_sums': not known; did you mean chain_sum"
    ):
        open_suite("reasoning_gym:chain_sums")
    with pytest.raises(
        UsageError, match=r"^limit 1001: suite 'reasoning_gym:lcm' has 1000 problems per seed"
    ):
        open_suite("reasoning_gym:lcm").samples(1001, 0)
