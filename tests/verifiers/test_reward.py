"""The process reward model asks for each step once, and only for what it has to."""

from collections.abc import Sequence

import anyio
import pytest
from branchwise.verifiers.aggregate import Aggregation
from branchwise.verifiers.base import Candidate, Score, StepSpan
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.reward import RewardVerifier
from support.candidates import SaidLease


class RecordingLease(SaidLease):
    """Answers `position / 100` and keeps what was asked for."""

    def __init__(self, *, covered: bool = True, answers: int | None = None) -> None:
        super().__init__()
        self.asked: list[tuple[int, ...]] = []
        self.covered = covered
        self.answers = answers

    async def rewards(self, model: str, positions: Sequence[int]) -> tuple[float, ...] | None:
        assert model == "prm"
        self.asked.append(tuple(positions))
        values = tuple(position / 100 for position in positions)
        return values[: self.answers] if self.covered else None

    async def logprobs(self, model: str, start: int) -> tuple[float, ...] | None:
        raise AssertionError("a reward model needs no log-probabilities")


def candidate(
    lease: RecordingLease,
    branch: str,
    tokens: Sequence[int],
    ends: Sequence[int],
    cut: bool = False,
    complete: bool = False,
):
    starts = [0, *ends]
    steps = [StepSpan(start, stop, "x;") for start, stop in zip(starts, ends, strict=False)]
    if cut:
        steps.append(StepSpan(starts[-1], len(tokens), "x", marked=False))
    return Candidate(
        problem=Problem(text="1 + 1", id="p"),
        tokens=tuple(tokens),
        steps=tuple(steps),
        thinking="",
        conclusion="",
        answer=None,
        complete=complete,
        lease=lease,
        branch=branch,
    )


def scores(verifier: RewardVerifier, *candidates: Candidate) -> list[Score]:
    async def run() -> list[Score]:
        return [await verifier.score(item) for item in candidates]

    return anyio.run(run)


def test_positions_are_the_last_tokens_of_the_marked_steps():
    lease = RecordingLease()
    [score] = scores(RewardVerifier(), candidate(lease, "0.1", range(9), [3, 6], cut=True))
    assert lease.asked == [(2, 5)]
    assert score == Score(value=0.05, steps=(0.02, 0.05))


def test_only_new_steps_are_asked_for_on_a_branch_and_below_it():
    lease = RecordingLease()
    first, second, third = scores(
        RewardVerifier(Aggregation.MEAN),
        candidate(lease, "0.1", range(3), [3]),
        candidate(lease, "0.1", range(6), [3, 6]),
        candidate(lease, "0.1.0", range(9), [3, 6, 9]),
    )
    assert lease.asked == [(2,), (5,), (8,)]
    assert (first.steps, second.steps, third.steps) == ((0.02,), (0.02, 0.05), (0.02, 0.05, 0.08))
    assert third.value == pytest.approx(0.05)


def test_siblings_and_rewritten_steps_do_not_share():
    lease = RecordingLease()
    scores(
        RewardVerifier(),
        candidate(lease, "0.1", [1, 2, 3], [3]),
        candidate(lease, "0.2", [1, 2, 3], [3]),
        candidate(lease, "0.1", [1, 2, 4], [3]),
        candidate(lease, "0.1", [1, 2, 3], [3]),
    )
    assert lease.asked == [(2,), (2,), (2,)]


def test_a_refusal_is_unknown_and_asked_again_later():
    lease = RecordingLease(covered=False)
    verifier = RewardVerifier()
    [refused] = scores(verifier, candidate(lease, "0", range(3), [3]))
    assert refused == Score(value=None, detail="budget")
    lease.covered = True
    [scored] = scores(verifier, candidate(lease, "0", range(3), [3]))
    assert scored.value == 0.02


def test_without_a_step_nothing_is_asked():
    lease = RecordingLease()
    [score] = scores(RewardVerifier(), candidate(lease, "0", range(3), [], cut=True))
    assert score.value is None
    assert lease.asked == []


def test_a_score_too_few_is_an_error():
    with pytest.raises(AssertionError, match="1 scores for 2 steps"):
        scores(RewardVerifier(), candidate(RecordingLease(answers=1), "0", range(6), [3, 6]))


def test_an_outcome_is_read_once_at_the_last_token_of_a_whole_solution():
    lease, verifier = RecordingLease(), RewardVerifier(outcome=True)
    part, whole, again = scores(
        verifier,
        candidate(lease, "0.1", range(6), [3, 6]),
        candidate(lease, "0.1", range(9), [3, 6], cut=True, complete=True),
        candidate(lease, "0.1", range(9), [3, 6], cut=True, complete=True),
    )
    assert lease.asked == [(8,)]
    assert part == Score(detail="unfinished")
    assert whole == again == Score(value=0.08)
    assert not verifier.step_scores
    assert RewardVerifier().step_scores


def test_the_name_has_the_parameters_that_differ_from_their_defaults():
    assert RewardVerifier().name == "prm"
    assert RewardVerifier(Aggregation.PROD, window=5).name == "prm(aggregation=prod, window=5)"
    assert RewardVerifier(outcome=True).name == "prm(outcome=true)"
