"""How a branch is scored: what the verifier sees, and where its verdict is kept."""

from typing import TYPE_CHECKING

import anyio.lowlevel
import structlog

from ..engine.text.stop import Stop
from ..verifiers.base import Candidate, Score, StepSpan, Verifier
from ..verifiers.guard import has_failed, preferred, scored
from .events import Scored
from .lease import BranchLease
from .run import Run
from .steps import is_whole

if TYPE_CHECKING:
    from .branch import SearchBranch

log = structlog.get_logger(__name__)


async def score_branch(branch: "SearchBranch", verifier: Verifier) -> Score:
    """Let `verifier` score the branch and record the verdict on branch and graph. One that fails cannot tell:
    the search goes on."""
    run = branch.run
    score = await _scored(branch, verifier)
    if has_failed(score):
        _report(run, verifier, score)
    branch.score = score.value
    if verifier.sound:
        branch.verified = score.verified
    _record(branch, verifier, score)
    run.emit(
        Scored,
        branch=branch.id,
        verifier=verifier.name,
        value=score.value,
        verified=score.verified,
        detail=score.detail,
        steps=_by_step(branch, score),
    )
    return score


async def _scored(branch: "SearchBranch", verifier: Verifier) -> Score:
    if branch.calls and verifier.sound:  # it would refute what is not meant as an answer
        await anyio.lowlevel.checkpoint()
        return Score(value=None, detail="ends with calls: no answer to check yet")
    branch.run.outside(1)
    try:
        return await scored(verifier, candidate_of(branch))
    finally:
        branch.run.outside(-1)


async def prefer_branch(first: "SearchBranch", second: "SearchBranch", verifier: Verifier) -> float | None:
    """The probability that the first branch is the better one, by a verifier that compares. None where it
    cannot tell, or fails."""
    run = first.run
    run.outside(1)
    try:
        score = await preferred(verifier, candidate_of(first), candidate_of(second))
    finally:
        run.outside(-1)
    if has_failed(score):
        _report(run, verifier, score)
    run.emit(
        Scored, branch=first.id, verifier=verifier.name, value=score.value, verified=None, detail=score.detail
    )
    return score.value


def _report(run: Run, verifier: Verifier, score: Score) -> None:
    """Say once in a search that a verifier failed, and how the first time."""
    if verifier.name not in run.failed_verifiers:
        run.failed_verifiers.add(verifier.name)
        run.notes.append(f"verifier {verifier.name} {score.detail}")
        log.warning("verifier failed", verifier=verifier.name, reason=score.detail)


def candidate_of(branch: "SearchBranch") -> Candidate:
    """The branch as verifiers see it."""
    spans: list[StepSpan] = []
    start = 0
    marks = _marks(branch)
    for step in branch.steps:
        stop = start + len(step.tokens)
        marked = step.stop in marks or is_whole(branch, step)
        spans.append(StepSpan(start, stop, step.text, marked, step.logprobs, step.stats))
        start = stop
    return Candidate(
        problem=branch.run.problem,
        tokens=tuple(branch.tokens),
        steps=tuple(spans),
        thinking=branch.phases.thinking_text(branch.tokens),
        conclusion=branch.phases.conclusion_text(branch.tokens),
        answer=branch.answer,
        complete=branch.complete,
        lease=BranchLease(branch),
        branch=branch.id,
    )


def _marks(branch: "SearchBranch") -> frozenset[Stop]:
    """Why steps end that a step verifier scores."""
    if branch.profile.step_mark is None and branch.run.tokens_per_step is None:
        return frozenset({Stop.MARK, Stop.THINK_END, Stop.ANSWER, Stop.EOS})
    return frozenset({Stop.MARK})


def _by_step(branch: "SearchBranch", score: Score) -> tuple[float, ...]:
    """A score for each step of the path; empty where the verifier tells none, or counts steps otherwise."""
    return tuple(score.steps) if len(score.steps) == len(branch.trail.nodes) - 1 else ()


def _record(branch: "SearchBranch", verifier: Verifier, score: Score) -> None:
    nodes = branch.trail.nodes[1:]
    if steps := _by_step(branch, score):
        for node, value in zip(nodes, steps, strict=True):
            node.scores[verifier.name] = value
    elif nodes:
        nodes[-1].scores[verifier.name] = score.value
    if nodes and verifier.sound:
        nodes[-1].verified = score.verified
