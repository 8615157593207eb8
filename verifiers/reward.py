"""The reward model as a verifier: one value per step, or one for the outcome, each computed once."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from ..engine.errors import CapacityError
from .aggregate import Aggregation, aggregate
from .base import Candidate, Score, StepSpan
from .named import full_name

MODEL = "prm"
WINDOW_STEPS = 3
"""Steps in a group, for the aggregation by windows."""

_TOKEN_BYTES = 4

_StepKey = bytes
"""Digest of the problem and of all tokens up to the end of a step."""


class RewardVerifier:
    """Scores partial and whole solutions with the step scorer `prm`, one value where each step ends.

    With `outcome` the model is one that scores whole solutions (Cobbe et al. 2021): it is read at their last
    token only.

    One instance serves one search. It keeps the values of each branch and asks only for steps that
    neither the branch nor an ancestor had scored; siblings never share, so that what is computed does not
    depend on who came first.
    """

    sound = False
    oracle = False
    step_scores = True
    models: tuple[str, ...] = (MODEL,)

    def __init__(
        self,
        aggregation: Aggregation = Aggregation.LAST,
        *,
        window: Annotated[int, Meta(ge=1, le=1024)] = WINDOW_STEPS,
        outcome: bool = False,
    ) -> None:
        """`window` is the number of steps in a group of the aggregation `window`."""
        self.aggregation = aggregation
        self.window = window
        self.outcome = outcome
        self.step_scores = not outcome
        settings = {
            "aggregation": (aggregation, Aggregation.LAST),
            "window": (window, WINDOW_STEPS),
            "outcome": (outcome, False),
        }
        self.name = full_name(MODEL, **{k: v for k, (v, default) in settings.items() if v != default})
        self._values: dict[str, dict[_StepKey, float]] = {}

    async def score(self, candidate: Candidate) -> Score:
        """Aggregated value of the marked steps, or that of the whole solution; None where there is none or
        the budget refuses what is new."""
        if self.outcome and not candidate.complete:
            return Score(detail="unfinished")
        steps = [step for step in candidate.steps if step.marked]
        if self.outcome:
            steps = [StepSpan(0, len(candidate.tokens), "")] if candidate.tokens else []
        if not steps:
            return Score(detail="no step")
        keys = list(_step_keys(candidate, steps))
        known = self._known(candidate.branch, keys)
        fresh = [index for index, key in enumerate(keys) if key not in known]
        if fresh:
            try:
                values = await candidate.lease.rewards(MODEL, [steps[index].stop - 1 for index in fresh])
            except CapacityError:
                return Score(detail="context of the reward model")
            if values is None:
                return Score(detail="budget")
            assert len(values) == len(fresh), (
                f"{len(values)} scores for {len(fresh)} steps of branch {candidate.branch}"
            )
            found = {keys[index]: value for index, value in zip(fresh, values, strict=True)}
            self._values.setdefault(candidate.branch, {}).update(found)
            known |= found
        scores = tuple(known[key] for key in keys)
        value = aggregate(scores, self.aggregation, window=self.window)
        return Score(value=value, steps=() if self.outcome else scores)

    def _known(self, branch: str, keys: Sequence[_StepKey]) -> dict[_StepKey, float]:
        known: dict[_StepKey, float] = {}
        for name in _lineage(branch):
            kept = self._values.get(name, {})
            known |= {key: kept[key] for key in keys if key in kept}
        return known


def _lineage(branch: str) -> Iterator[str]:
    """A branch id and its ancestors', as 0.3.1, 0.3, 0."""
    while branch:
        yield branch
        branch = branch.rpartition(".")[0]
    yield ""


def _step_keys(candidate: Candidate, steps: Sequence[StepSpan]) -> Iterator[_StepKey]:
    problem = candidate.problem
    asked = (problem.id, problem.system, problem.messages, problem.text)
    digest = hashlib.blake2b(repr(asked).encode(), digest_size=16)
    position = 0
    for step in steps:
        for token in candidate.tokens[position : step.stop]:
            digest.update(token.to_bytes(_TOKEN_BYTES, "little"))
        position = step.stop
        yield digest.digest()
