"""Asking a verifier that may fail: what it does wrong is a verdict of "cannot tell", and never decides."""

from typing import Any

import structlog

from .base import Candidate, Score, Verifier
from .nearest import shown

FAILED = "failed: "
"""How the detail of a failure begins."""

_DETAIL_MAX = 400

log = structlog.get_logger(__name__)


async def scored(verifier: Verifier, candidate: Candidate) -> Score:
    """The verifier's score, where it keeps its contract; else a score of None that says why not.

    What it spent until it failed stays charged. Cancellation passes through.
    """
    try:
        return _checked(await verifier.score(candidate))
    except Exception as error:
        return _told(error)


async def preferred(verifier: Any, first: Candidate, second: Candidate) -> Score:
    """The probability that the first candidate is the better one, as the value of a score; as in `scored`."""
    try:
        value = await verifier.prefer(first, second)
        return _checked(Score(value=value, detail=f"{first.branch} against {second.branch}"))
    except Exception as error:
        return _told(error)


def failed(reason: str) -> Score:
    """The verdict of a verifier that could not do its work."""
    return Score(detail=(FAILED + " ".join(reason.split()))[:_DETAIL_MAX])


def _told(error: Exception) -> Score:
    log.debug("verifier failed", exc_info=error)
    return failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def has_failed(score: Score) -> bool:
    """Whether a score says that its verifier failed."""
    return score.value is None and score.detail.startswith(FAILED)


def _checked(score: Any) -> Score:
    """A NaN would make every vote meaningless, and a value above 1 win them all."""
    if not isinstance(score, Score):
        return failed(f"it returned {shown(score)}, which is no Score")
    for value in (score.value, *score.steps):
        if value is not None and not (isinstance(value, float | int) and 0.0 <= value <= 1.0):
            return failed(f"it returned a value of {shown(value)}, which is no number from 0 to 1")
    if score.verified not in (True, False, None):
        return failed(f"it returned verified={shown(score.verified)}, which is not true, false or None")
    return score
