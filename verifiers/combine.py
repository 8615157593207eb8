"""Verifiers out of verifiers: all must pass, one is enough, or the first that can tell.

Verdicts follow three-valued logic (Kleene): what is unknown stays so unless the known decides alone. Only
sound members verify or refute. Members are asked in their order, on one candidate's lease, and not asked
where the ones before have decided. Partial work is scored by the members that score steps.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta

from ..engine.errors import UsageError
from .base import Candidate, Score, Verifier
from .guard import scored
from .named import full_name

Members = Annotated[tuple[Verifier, ...], Meta(min_length=1, max_length=16)]

Asked = tuple[Verifier, Score]


class _Combined:
    """What holds for each combination: it is as sound as its best member, an oracle with its first."""

    tag = ""

    def __init__(self, of: Members) -> None:
        """Raises `UsageError` where there is no member."""
        if not of:
            raise UsageError(f"verifier {self.tag}: of is empty; give 1 verifier or more")
        self.of = tuple(of)
        self.name = full_name(self.tag, of=self.of)
        self.stats_top_k = max(getattr(member, "stats_top_k", 0) for member in self.of)

    @property
    def sound(self) -> bool:
        """Whether a member's pass proves the answer."""
        return any(member.sound for member in self.of)

    @property
    def oracle(self) -> bool:
        """Whether a member knows the answer: then so does the whole."""
        return any(member.oracle for member in self.of)

    @property
    def step_scores(self) -> bool:
        """Whether a member scores partial work."""
        return any(member.step_scores for member in self.of)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the members need."""
        return tuple(dict.fromkeys(model for member in self.of for model in member.models))

    @property
    def asks(self) -> tuple[str, ...]:
        """The models that the members speak to."""
        asked = (model for member in self.of for model in getattr(member, "asks", ()))
        return tuple(dict.fromkeys(asked))

    async def _ask(self, candidate: Candidate, decided: Callable[[Verifier, Score], bool]) -> list[Asked]:
        """The scores of the members up to the first that decides."""
        members = self.of
        if not candidate.complete and self.step_scores:
            members = tuple(member for member in members if member.step_scores)
        asked: list[Asked] = []
        for member in members:
            score = await scored(member, candidate)
            asked.append((member, score))
            if decided(member, score):
                break
        return asked


class AllOf(_Combined):
    """Passes what all of its members pass: the least of their values.

    One sound refutation refutes, and a value of 0 decides; else an unknown member leaves it unknown.
    """

    tag = "all_of"

    async def score(self, candidate: Candidate) -> Score:
        """The least value, and the verdict of all sound members."""
        asked = await self._ask(candidate, lambda member, score: member.sound and score.verified is False)
        verified = _sound_verdicts(asked)
        if False in verified:
            known = [score.value for _, score in asked if score.value is not None]
            return Score(value=min(known, default=0.0), verified=False, detail=_details(asked))
        proven = bool(verified) and len(verified) == sum(member.sound for member in self.of)
        return Score(
            value=_least([score.value for _, score in asked]),
            verified=True if proven and None not in verified else None,
            steps=_steps(asked, min),
            detail=_details(asked),
        )


class AnyOf(_Combined):
    """Passes what one of its members passes: the highest of their values.

    One sound proof proves, and a value of 1 decides; else an unknown member leaves it unknown. It refutes
    where all members are sound and refute.
    """

    tag = "any_of"

    async def score(self, candidate: Candidate) -> Score:
        """The highest value, and the verdict of any sound member."""
        asked = await self._ask(candidate, lambda member, score: member.sound and score.verified is True)
        verified = _sound_verdicts(asked)
        if True in verified:
            known = [score.value for _, score in asked if score.value is not None]
            return Score(value=max(known, default=1.0), verified=True, detail=_details(asked))
        refuted = len(verified) == len(self.of) and None not in verified
        return Score(
            value=_highest([score.value for _, score in asked]),
            verified=False if refuted else None,
            steps=_steps(asked, max),
            detail=_details(asked),
        )


class FirstThatDecides(_Combined):
    """Takes the score of its first member that can tell, in the order given: the sure or cheap ones first."""

    tag = "first_that_decides"

    async def score(self, candidate: Candidate) -> Score:
        """The first score that is not None; None where no member can tell."""
        asked = await self._ask(candidate, lambda member, score: score.value is not None)
        member, score = asked[-1]
        if score.value is None:
            return Score(detail=_details(asked))
        return Score(
            value=score.value,
            verified=score.verified if member.sound else None,
            steps=score.steps,
            detail=_details(asked),
        )


def _sound_verdicts(asked: Sequence[Asked]) -> list[bool | None]:
    return [score.verified for member, score in asked if member.sound]


def _least(values: Sequence[float | None]) -> float | None:
    """The minimum; unknown where one is unknown, unless another is 0 already."""
    known = [value for value in values if value is not None]
    if 0.0 in known:
        return 0.0
    return min(known) if known and len(known) == len(values) else None


def _highest(values: Sequence[float | None]) -> float | None:
    """The maximum; unknown where one is unknown, unless another is 1 already."""
    known = [value for value in values if value is not None]
    if 1.0 in known:
        return 1.0
    return max(known) if known and len(known) == len(values) else None


def _steps(asked: Sequence[Asked], rule: Callable[[Sequence[float]], float]) -> tuple[float, ...]:
    """The steps' values of the members that score steps, joined one by one; those of the first where they
    count different steps."""
    stepwise = [score.steps for _, score in asked if score.steps]
    if not stepwise:
        return ()
    if len({len(steps) for steps in stepwise}) > 1:
        return stepwise[0]
    return tuple(rule(values) for values in zip(*stepwise, strict=True))


def _details(asked: Sequence[Asked]) -> str:
    return "; ".join(f"{member.name}: {score.detail}" for member, score in asked if score.detail)
