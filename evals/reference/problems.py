"""The reference tasks as problems: their sentences in, the model's prompts out, answers read, voted on
and replayed."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from ...engine.errors import UsageError
from ...verifiers.base import Candidate, Score, Verifier
from ...verifiers.problem import Attempt, Problem
from .normal_form import normal_form
from .tasks import arithmetic, arithmetic_replay, countdown, countdown_replay, toolcall
from .tasks.trace import OutOfRangeError, Replay
from .vocabulary import STEP_MARK, WAIT

_DIGITS_MAX = 9
_ASCII_SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-"})


class CountdownTask:
    """Countdown: combine numbers with + - * /, each used once, to reach a target. The answer is an infix
    expression."""

    name = "countdown"

    def __init__(self, instance: countdown.Instance) -> None:
        self.instance = instance

    @classmethod
    def recognise(cls, text: str) -> Self | None:
        """Read "Use 3, 7 and 12 to make 43"; None for other text.

        Raises `UsageError` for numbers that the models were not trained on.
        """
        instance = _recognised(countdown.recognise, text)
        return None if instance is None else cls(instance)

    def prompt(self) -> str:
        return countdown.prompt(self.instance)

    def revise(self, attempts: Sequence[Attempt]) -> str:
        """The prompt with failed branches behind it, as in the training traces."""
        return self.prompt() + failed_branches(attempts)

    def extract(self, text: str) -> str | None:
        return text.strip().translate(_ASCII_SIGNS) or None

    def canonical(self, answer: str) -> str | None:
        """The expression's normal form, so that `12*3+7` and `7+3*12` vote together; None where it is
        malformed."""
        return normal_form(answer)

    def verifier(self) -> Verifier | None:
        return ReplayVerifier(self)

    def replay(self, candidate: Candidate) -> Replay:
        """Exact replay against numbers and target; no gold answer is used."""
        return countdown_replay.replay(self.instance, candidate.thinking, candidate.answer)


class ArithmeticTask:
    """Arithmetic: a sum of products of small numbers, by standard precedence. The answer is the integer."""

    name = "arithmetic"

    def __init__(self, instance: arithmetic.Instance) -> None:
        self.instance = instance

    @classmethod
    def recognise(cls, text: str) -> Self | None:
        """Read "12 + 7*3 - 5" or "What is 12 + 7*3 - 5?"; None for other text.

        Raises `UsageError` for numbers that the models were not trained on.
        """
        instance = _recognised(arithmetic.recognise, text)
        return None if instance is None else cls(instance)

    def prompt(self) -> str:
        return arithmetic.prompt(self.instance)

    def revise(self, attempts: Sequence[Attempt]) -> str:
        """The prompt with failed branches behind it, as in the training traces."""
        return self.prompt() + failed_branches(attempts)

    def extract(self, text: str) -> str | None:
        return text.strip().translate(_ASCII_SIGNS) or None

    def canonical(self, answer: str) -> str | None:
        """The integer; None where the answer is none."""
        return _whole(answer)

    def verifier(self) -> Verifier | None:
        """None: checking a sum means computing it, which only an oracle may."""
        return None

    def replay(self, candidate: Candidate) -> Replay:
        """Replay that recomputes the answer."""
        return arithmetic_replay.replay(self.instance, candidate.thinking, candidate.answer)


class CalculatorTask:
    """Arithmetic on larger numbers, for which the policy calls a calculator. The answer is the integer."""

    name = "calculator"

    def __init__(self, instance: toolcall.Instance) -> None:
        self.instance = instance

    @classmethod
    def recognise(cls, text: str) -> Self | None:
        """Read "Use the calculator: 37*45 + 12"; None for other text.

        Raises `UsageError` for numbers that the models were not trained on.
        """
        instance = _recognised(toolcall.recognise, text)
        return None if instance is None else cls(instance)

    def prompt(self) -> str:
        return toolcall.prompt(self.instance)

    def extract(self, text: str) -> str | None:
        return text.strip().translate(_ASCII_SIGNS) or None

    def canonical(self, answer: str) -> str | None:
        """The integer; None where the answer is none."""
        return _whole(answer)

    def verifier(self) -> Verifier | None:
        """None: checking a sum means computing it, which only an oracle may."""
        return None


class ReplayVerifier:
    """Checks the answer of a reference task exactly, and replays its steps.

    Sound. An oracle for arithmetic, where it recomputes the answer; not for Countdown, where numbers and
    target are the problem's own.
    """

    name = "replay"
    sound = True
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, task: CountdownTask | ArithmeticTask) -> None:
        self.task = task

    @classmethod
    def for_problem(cls, problem: Problem) -> Self:
        """The verifier of one problem. Raises `UsageError` for problems that are not of the reference
        tasks."""
        if not isinstance(problem.task, CountdownTask | ArithmeticTask):
            raise UsageError(
                "verifier 'replay' checks the reference tasks only: Countdown and arithmetic sentences"
            )
        return cls(problem.task)

    @property
    def oracle(self) -> bool:
        return isinstance(self.task, ArithmeticTask)

    async def score(self, candidate: Candidate) -> Score:
        """1 for a right answer, 0 for a wrong one; None while there is no answer."""
        if candidate.answer is None:
            return Score(detail="no answer")
        replay = self.task.replay(candidate)
        return Score(value=float(replay.correct), verified=replay.correct, detail=_told(replay))


def failed_branches(attempts: Sequence[Attempt]) -> str:
    """The attempts as the policy was taught to see them: the whole steps of the last branch of each, and the
    wait token behind it, so that it starts anew from the root."""
    lasts = (attempt.thinking.rpartition(WAIT)[2] for attempt in attempts)
    branches = (thinking[: thinking.rfind(STEP_MARK) + 1] for thinking in lasts)
    return "".join(branch + WAIT for branch in branches if branch)


def _whole(answer: str) -> str | None:
    digits = answer.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        return None
    return str(int(answer))


def _told(replay: Replay) -> str:
    verdict = "right answer" if replay.correct else "wrong answer"
    return verdict if replay.legal else f"{verdict}, with an illegal step"


def _recognised(recognise: Callable[[str], Any], text: str) -> Any:
    try:
        return recognise(text)
    except OutOfRangeError as error:
        raise UsageError(" ".join(str(error).split())) from error
