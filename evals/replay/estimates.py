"""What k samples would have given, from a recording with n >= k of them, without bias and without a model.

For samples that are exchangeable and ran to their own end. Cost grows with k in proportion: k times the mean.
"""

from collections.abc import Sequence

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer import canonical
from ...verifiers.vote import Ballot, Select, electorate, majority, select
from ..statistics.intervals import Estimate, mean_estimate
from ..statistics.subsets import EXACT_SUBSETS, mean_over_subsets, pass_at_k
from .recording import RecordedProblem, Recording


class VoteEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of a selection rule at k samples, and the share of votes that tied at the top (a tie goes to
    the first seen)."""

    k: int
    rule: Select
    accuracy: Estimate
    tied: float
    tokens: Estimate | None


def pass_estimate(recording: Recording, k: int) -> Estimate:
    """pass@k, its interval over problems. Raises `UsageError` for k beyond what was recorded."""
    _check(recording, k)
    values = []
    for problem in recording.problems:
        right = sum(completion.correct is True for completion in problem.completions)
        values.append(pass_at_k(len(problem.completions), right, k))
    return mean_estimate(values)


def vote_estimate(
    recording: Recording,
    k: int,
    rule: Select = Select.MAJORITY,
    *,
    seed: int = 0,
    subsets: int = EXACT_SUBSETS,
) -> VoteEstimate:
    """Accuracy of selecting by `rule` among k samples, over k-subsets: all, or so many random ones.

    Raises `UsageError` for k beyond what was recorded, and for a rule by scores where there are none.
    """
    _check(recording, k)
    if rule in (Select.MAX_SCORE, Select.WEIGHTED_VOTE) and not recording.scored:
        raise UsageError(f"recording {recording.name}: has no scores; select by majority")
    accuracies, ties = [], []
    for index, problem in enumerate(recording.problems):
        ballots = ballots_of(problem)

        def is_right(
            chosen: Sequence[int],
            problem: RecordedProblem = problem,
            ballots: Sequence[Ballot] = ballots,
        ) -> float:
            winner = select([ballots[i] for i in chosen], rule)
            return float(winner is not None and problem.completions[chosen[winner]].correct is True)

        def is_tied(chosen: Sequence[int], ballots: Sequence[Ballot] = ballots) -> float:
            return float(tied([ballots[i] for i in chosen]))

        count = len(ballots)
        accuracies.append(mean_over_subsets(count, k, is_right, seed=seed + index, subsets=subsets))
        ties.append(mean_over_subsets(count, k, is_tied, seed=seed + index, subsets=subsets))
    return VoteEstimate(
        k=k,
        rule=rule,
        accuracy=mean_estimate(accuracies),
        tied=sum(ties) / len(ties),
        tokens=token_estimate(recording, k),
    )


def token_estimate(recording: Recording, k: int) -> Estimate | None:
    """Mean tokens of k samples of a problem; None where they were not recorded."""
    if not recording.tokens_known:
        return None
    means = [
        k * sum(c.tokens or 0 for c in problem.completions) / len(problem.completions)
        for problem in recording.problems
    ]
    return mean_estimate(means)


def ballots_of(problem: RecordedProblem) -> list[Ballot]:
    """The completions as a vote sees them, in the order of the recording."""
    return [
        Ballot(
            order=(index,),
            key=None if completion.answer is None else canonical(completion.answer),
            length=completion.tokens or 0,
            score=completion.score,
            complete=completion.complete,
        )
        for index, completion in enumerate(problem.completions)
    ]


def tied(ballots: Sequence[Ballot]) -> bool:
    """Whether several answers have the most votes."""
    votes = sorted(majority(electorate(ballots)).values(), reverse=True)
    return len(votes) > 1 and votes[0] == votes[1]


def _check(recording: Recording, k: int) -> None:
    if not 1 <= k <= recording.most_samples:
        raise UsageError(
            f"k={k}: recording {recording.name} has {recording.most_samples} samples of every problem; "
            f"give 1 to {recording.most_samples}"
        )
    recording.check_whole()
