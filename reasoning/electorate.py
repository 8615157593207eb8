"""Which answers of a run are equal and so vote together."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..verifiers.answer import canonical
from ..verifiers.answer_type import AnswerType
from ..verifiers.compare import Symbolic, compare, symbolic_tier
from ..verifiers.partition import partition
from ..verifiers.problem import Problem
from .aside import aside

Pair = tuple[str, str]


class _Undecided(Exception):
    """Only the symbolic tier can tell."""


class Electorate:
    """The classes of a run's answers. Keys come first: a task's own, which decide alone where there is a
    task, else canonical ones; answers of different keys are then compared, each pair once. `exact`: only
    answers that are written alike are equal.

    `outside` is told +1 before and -1 after work that is not the engine's. `symbolic` replaces the worker
    process (tests).
    """

    def __init__(
        self,
        problem: Problem,
        outside: Callable[[int], None],
        symbolic: Symbolic | None = None,
        *,
        exact: bool = False,
    ) -> None:
        self.version = 0
        """Grows where a comparison may have changed the classes."""
        self._key = _written if exact else canonical if problem.task is None else problem.task.canonical
        self._compares = problem.task is None and not exact
        self._outside = outside
        self._symbolic = symbolic or symbolic_tier
        self.as_written: set[str] = set()
        """Answers that equal their own spelling alone: calls of tools."""
        self._keys: dict[str, str | None] = {}
        self._equal: dict[Pair, bool] = {}

    def key(self, answer: str | None) -> str | None:
        """The key of one answer, None for an abstention."""
        if answer is None:
            return None
        if answer not in self._keys:
            self._keys[answer] = answer if answer in self.as_written else self._key(answer)
        return self._keys[answer]

    def classes(self, answers: Sequence[str | None]) -> list[str | None]:
        """The class of each answer, by what was compared so far; the answers in the order of their branches.
        Returns at once."""
        return self._partition(answers, set())

    async def compare(self, answers: Sequence[str | None]) -> None:
        """Compare what may be equal among these answers and was not compared yet: off the event loop where
        it takes a symbolic comparison. What cannot be decided stays apart."""
        while True:
            missing: set[Pair] = set()
            self._partition(answers, missing)
            if not missing:
                return
            await self._learn(sorted(missing))

    def _partition(self, answers: Sequence[str | None], missing: set[Pair]) -> list[str | None]:
        def equal(first: str, second: str) -> bool:
            if first in self.as_written or second in self.as_written:
                return False
            pair = (min(first, second), max(first, second))
            if pair not in self._equal:
                missing.add(pair)
            return self._equal.get(pair, False)

        keys = [self.key(answer) for answer in answers]
        return partition(answers, keys, equal if self._compares else _never)

    async def _learn(self, pairs: Iterable[Pair]) -> None:
        symbolic: list[Pair] = []
        for pair in pairs:
            try:
                self._note(pair, _verdict(pair, _deferred))
            except _Undecided:
                symbolic.append(pair)
        if not symbolic:
            return
        self._outside(1)
        try:
            for pair in symbolic:
                self._note(pair, await aside(partial(_verdict, pair, self._symbolic)))
        finally:
            self._outside(-1)

    def _note(self, pair: Pair, equal: bool) -> None:
        self._equal[pair] = equal
        self.version += equal


def _verdict(pair: Pair, symbolic: Symbolic) -> bool:
    return compare(*pair, AnswerType.EXPRESSION, symbolic).equal is True


def _deferred(first: str, second: str) -> bool | None:
    raise _Undecided


def _written(answer: str) -> str:
    return answer


def _never(first: str, second: str) -> bool:
    return False
