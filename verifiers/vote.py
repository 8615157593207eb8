"""Choosing one candidate among many: pure functions over ballots, the same for any order of the ballots.

A ballot without a key abstains and never wins. A branch that was offered twice votes once. Only the best
tier votes: candidates that a sound verifier passed, else complete ones, else cut ones; within these,
unrefuted before refuted. A score or log-probability of None, or not a number, means "cannot tell" and weighs
like the average of the known ones, never like 0. Every tie goes to the lowest branch id.
"""

import enum
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

BORDA_POWER = 0.5


class Select(enum.StrEnum):
    """How the incumbent is chosen among all offered candidates; ties go to the lowest branch id, in
    `SHORT_MAJORITY` to the shortest candidate first."""

    MAX_SCORE = "max_score"
    WEIGHTED_VOTE = "weighted_vote"
    MAJORITY = "majority"
    SHORT_MAJORITY = "short_majority"
    CONFIDENCE_VOTE = "confidence_vote"
    BORDA = "borda"
    MEAN_LOGPROB = "mean_logprob"
    KNOCKOUT = "knockout"


class Ballot(msgspec.Struct, frozen=True, kw_only=True):
    """What a vote sees of one candidate.

    `order`: the branch id as child indices from the root. `key`: the class of the answer, None for an
    abstention. `length` counts its tokens. `score` lies in [0, 1]; `logprob` is the mean
    log-probability of the sampled tokens; `verified` is a sound verifier's verdict;
    `rounds` are those of a tournament that it survived.
    """

    order: tuple[int, ...]
    key: str | None
    length: int = 0
    score: float | None = None
    logprob: float | None = None
    complete: bool = True
    verified: bool | None = None
    rounds: int = 0


Tally = dict[str, float]


def select(ballots: Sequence[Ballot], rule: Select) -> int | None:
    """Index of the winning ballot, or None where all abstain.

    Rules by score fall back to the majority where no voter has a score, `mean_logprob` and `confidence_vote`
    where none has a log-probability, `knockout` to the weighted vote where no tournament was held.
    """
    voters = electorate(ballots)
    if not voters:
        return None
    winner = _RULES[rule](voters)
    return next(index for index, ballot in enumerate(ballots) if ballot is winner)


def electorate(ballots: Iterable[Ballot]) -> list[Ballot]:
    """The ballots of the best tier that has an answer, one for each branch, by branch id."""
    answered = [ballot for ballot in ballots if ballot.key]
    best = max(map(_tier, answered), default=None)
    voters: dict[tuple[int, ...], Ballot] = {}
    for ballot in sorted((ballot for ballot in answered if _tier(ballot) == best), key=_seniority):
        voters[ballot.order] = ballot
    return list(voters.values())


def _seniority(ballot: Ballot) -> tuple[Any, ...]:
    """Branch ids first; of one branch the ballot that knows most, and scores highest, last."""
    score, logprob = _known(ballot.score), _known(ballot.logprob)
    return (ballot.order, _at_least(score), _at_least(logprob), ballot.key)


def _tier(ballot: Ballot) -> tuple[bool, bool, bool]:
    return ballot.verified is True, ballot.complete, ballot.verified is not False


def majority(voters: Iterable[Ballot]) -> Tally:
    """Votes per key, one for each voter (self-consistency, Wang et al. 2022, arXiv 2203.11171)."""
    return _tally((voter, 1.0) for voter in voters)


def weighted(voters: Sequence[Ballot]) -> Tally:
    """Sum of the scores per key (weighted best-of-N, Li et al. 2022, arXiv 2206.02336).

    Raises `ValueError` for a score below 0: sums of raw rewards, which may be negative, rank nothing.
    """
    scores = _filled([voter.score for voter in voters])
    if scores and min(scores) < 0:
        raise ValueError(f"score {min(scores)!r}: a vote is weighted by scores in [0, 1]")
    return _tally(zip(voters, scores, strict=True))


def confidence_weighted(voters: Sequence[Ballot]) -> Tally:
    """Sum per key of the geometric mean probability of a voter's tokens (after Fu et al. 2025, arXiv
    2508.15260, with the mean over the whole trace for its confidence)."""
    logprobs = [_known(voter.logprob) for voter in voters]
    confidences = [None if logprob is None else math.exp(min(logprob, 0.0)) for logprob in logprobs]
    return _tally(zip(voters, _filled(confidences), strict=True))


def borda(voters: Sequence[Ballot], power: float = BORDA_POWER) -> Tally:
    """Sum per key of `(N - rank + 1) ** power` over the N voters ranked by confidence (Kang et al. 2025,
    arXiv 2502.18581).

    The confidence is the score where any voter has one, else the mean log-probability.
    Equals share the average of their ranks' points.
    """
    confidence = _filled(
        [voter.score for voter in voters] if _scored(voters) else [voter.logprob for voter in voters]
    )
    worths: defaultdict[float, list[float]] = defaultdict(list)
    for place, value in enumerate(sorted(confidence), start=1):
        worths[value].append(place**power)
    points = {value: math.fsum(shared) / len(shared) for value, shared in worths.items()}
    return _tally((voter, points[value]) for voter, value in zip(voters, confidence, strict=True))


def _tally(weights: Iterable[tuple[Ballot, float]]) -> Tally:
    """Total per key, exactly rounded, so that no order of the ballots changes it."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for voter, weight in weights:
        if voter.key:
            parts[voter.key].append(weight)
    return {key: math.fsum(values) for key, values in parts.items()}


def _filled(values: Sequence[float | None]) -> list[float]:
    """The values with None replaced by the mean of the known ones; all 1 where none is known."""
    found = [_known(value) for value in values]
    known = [value for value in found if value is not None]
    neutral = math.fsum(known) / len(known) if known else 1.0
    return [neutral if value is None else value for value in found]


def _known(value: float | None) -> float | None:
    """The value, None where it is not a number."""
    return None if value is None or math.isnan(value) else value


def _at_least(value: float | None) -> float:
    return -math.inf if value is None else value


def _scored(voters: Iterable[Ballot]) -> bool:
    return any(_known(voter.score) is not None for voter in voters)


def _elect(voters: Sequence[Ballot], tally: Tally) -> Ballot:
    """The best voter of the key with the highest total; ties go to the lowest branch id."""
    most = max(tally.values())
    key = next(voter.key for voter in voters if voter.key and tally[voter.key] == most)
    return _highest([voter for voter in voters if voter.key == key], lambda voter: voter.score)


def _highest(voters: Sequence[Ballot], value: Callable[[Ballot], float | None]) -> Ballot:
    """The voter of the highest known value, the first where none is known or equals meet."""
    return max(voters, key=lambda voter: _at_least(_known(value(voter))))


def _max_score(voters: Sequence[Ballot]) -> Ballot:
    return _highest(voters, lambda voter: voter.score) if _scored(voters) else _by_majority(voters)


def _mean_logprob(voters: Sequence[Ballot]) -> Ballot:
    known = any(_known(voter.logprob) is not None for voter in voters)
    return _highest(voters, lambda voter: voter.logprob) if known else _by_majority(voters)


def _by_majority(voters: Sequence[Ballot]) -> Ballot:
    return _elect(voters, majority(voters))


def _by_short_majority(voters: Sequence[Ballot]) -> Ballot:
    """The shortest voter of the keys with the most votes (short-m@k, Hassid et al. 2025, arXiv
    2505.17813)."""
    tally = majority(voters)
    most = max(tally.values())
    return min((v for v in voters if v.key and tally[v.key] == most), key=lambda voter: voter.length)


def _knockout(voters: Sequence[Ballot]) -> Ballot:
    if not any(voter.rounds for voter in voters):
        return _elect(voters, weighted(voters))
    return max(voters, key=lambda voter: voter.rounds)


_RULES: dict[Select, Callable[[Sequence[Ballot]], Ballot]] = {
    Select.MAX_SCORE: _max_score,
    Select.WEIGHTED_VOTE: lambda voters: _elect(voters, weighted(voters)),
    Select.MAJORITY: _by_majority,
    Select.SHORT_MAJORITY: _by_short_majority,
    Select.CONFIDENCE_VOTE: lambda voters: _elect(voters, confidence_weighted(voters)),
    Select.BORDA: lambda voters: _elect(voters, borda(voters)),
    Select.MEAN_LOGPROB: _mean_logprob,
    Select.KNOCKOUT: _knockout,
}
