"""reasoning-gym's procedural tasks by name, scored by its own scorers in a process that can be killed."""

import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer_type import AnswerType
from ...verifiers.nearest import unknown
from ...verifiers.sandbox import worker_prefix
from ...verifiers.worker import Worker, WorkerFailed, WorkerTimeout
from . import gym_worker
from .base import Gold, Grade, Sample

DEFAULT_SIZE = 200
DRAW_S = 120.0
SCORE_S = 60.0
SCORE_CPU_S = 15

PREFIX = "reasoning_gym:"
_INSTRUCTION = "Give the final answer between <answer> and </answer>."


class GymSuite(msgspec.Struct, frozen=True):
    """The problems of one task. Right is a score of exactly 1: the partial credit that scorers give for
    answers of the right form, or that contain the right one, does not count."""

    name: str
    task: str
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        """Raises `UsageError` for a limit beyond what a seed has, or where reasoning-gym is not installed."""
        count = DEFAULT_SIZE if limit is None else limit
        if count > gym_worker.SIZE:
            raise UsageError(f"limit {count}: suite {self.name!r} has {gym_worker.SIZE} problems per seed")
        entries = _ask("draw", self.task, seed, count, timeout_s=DRAW_S)
        return [
            Sample(
                id=f"{self.task}:{seed}:{place}",
                problem=f"{question.rstrip()}\n\n{_INSTRUCTION}",
                gold=Gold(AnswerType.STRING, answer),
                meta={"seed": str(seed), "place": str(place)},
            )
            for place, (question, answer) in enumerate(entries)
        ]

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        if answer is None:
            return Grade(False, "no answer")
        seed, place = int(sample.meta["seed"]), int(sample.meta["place"])
        try:
            score = _worker().call(
                "score", self.task, seed, place, answer, timeout_s=SCORE_S, cpu_s=SCORE_CPU_S
            )
        except WorkerTimeout as error:
            return Grade(None, str(error))
        except WorkerFailed as error:
            if error.kind in ("died", "import", "MemoryError"):
                return Grade(None, str(error))
            return Grade(False, f"the scorer refused it ({error.kind})")
        return Grade(score == 1.0, "" if score == 1.0 else f"score {score:g}")


def gym_suite(name: str) -> GymSuite:
    """The suite `reasoning_gym:TASK`. Raises `UsageError` for a task that there is not, or without the
    package."""
    task = name.removeprefix(PREFIX)
    known = _ask("tasks", timeout_s=DRAW_S)
    if task not in known:
        raise UsageError(unknown("reasoning-gym task", task, known))
    return GymSuite(name, task)


def _ask(*request: Any, timeout_s: float) -> Any:
    try:
        return _worker().call(*request, timeout_s=timeout_s)
    except (WorkerFailed, WorkerTimeout) as error:
        if isinstance(error, WorkerFailed) and error.kind == "ModuleNotFoundError":
            raise UsageError(
                "suites reasoning_gym:TASK need reasoning-gym; pip install 'branchwise[evals]'"
            ) from error
        raise UsageError(f"reasoning-gym cannot do this: {error}") from error


_lock = threading.Lock()
_workers: list[Worker] = []


def _worker() -> Worker:
    with _lock:
        if not _workers:
            _workers.append(Worker(f"{gym_worker.__name__}:answer", prefix=worker_prefix()))
        return _workers[0]
