"""How a branch is scored: what the verifier sees, and its metered way to the engine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.errors import BranchwiseError
from ..engine.protocol import ScoreParams, Scores
from ..engine.text.stop import Stop
from ..verifiers.base import Candidate, Score, StepSpan, Verifier
from ..verifiers.nearest import shown
from .caps import caps_in_force
from .clock import TicketKind
from .events import Scored
from .graph import Node
from .meter import BranchMeter
from .track import Track

if TYPE_CHECKING:
    from .branch import SearchBranch


class BranchLease:
    """Implements `verifiers.base.Lease` on a branch: its mirror on the scoring model follows its tokens."""

    def __init__(self, branch: "SearchBranch") -> None:
        self._branch = branch

    async def rewards(self, model: str, positions: Sequence[int]) -> tuple[float, ...] | None:
        """`positions` count as in `Branch.tokens`."""
        branch = self._branch
        rows = branch.mirror(model).rows(branch.trail.tokens, positions)
        scores = await self._score(model, reward_at=rows)
        return None if scores.refused else scores.rewards

    async def logprobs(self, model: str, start: int) -> tuple[float, ...] | None:
        """`start` counts as in `Branch.tokens`."""
        self._branch.sequence(model)
        scores = await self._score(model, logprobs_from=len(self._branch.prompt) + start)
        return None if scores.refused else scores.logprobs

    async def _score(
        self, model: str, *, reward_at: tuple[int, ...] = (), logprobs_from: int | None = None
    ) -> Scores:
        branch, run = self._branch, self._branch.run
        mirror = branch.mirror(model)
        with run.ledger.lock:
            if model == run.policy and not run.take_kv(branch, 0):
                return Scores(refused=True)
            ticket = run.clock.begin(branch.path, TicketKind.SCORE)
        nodes, starts = mirror.layout(branch.trail.nodes)
        closed_end = Node(id="", branch="", kind="", start=mirror.length, seed=0)
        track = Track(branch, nodes, closed_end, starts)
        meter = BranchMeter(run, ticket, track, caps_in_force(), answering=True)
        params = ScoreParams(reward_at=reward_at, logprobs_from=logprobs_from, order=branch.path)
        run.outside(-1)
        try:
            scores = await run.backend.score(mirror.seq, params, meter)
            await run.clock.finish(ticket)
        except BaseException:
            with run.ledger.lock:
                run.clock.drop(ticket)
            raise
        finally:
            run.outside(1)
        return scores


async def score_branch(branch: "SearchBranch", verifier: Verifier) -> Score:
    """Let `verifier` score the branch and record the verdict on branch and graph."""
    run = branch.run
    run.outside(1)
    try:
        score = _checked(await verifier.score(_candidate(branch)), verifier)
    finally:
        run.outside(-1)
    branch.score = score.value
    if verifier.sound:
        branch.verified = score.verified
    _record(branch, verifier, score)
    run.emit(Scored, branch=branch.id, verifier=verifier.name, value=score.value, verified=score.verified)
    return score


def _checked(score: object, verifier: Verifier) -> Score:
    """What the verifier returned, where it keeps its contract: a NaN would make every vote meaningless."""
    if not isinstance(score, Score):
        raise BranchwiseError(f"verifier {verifier.name!r} returned {shown(score)}: it must return a Score")
    for value in (score.value, *score.steps):
        if value is not None and not (isinstance(value, float | int) and 0.0 <= value <= 1.0):
            raise BranchwiseError(
                f"verifier {verifier.name!r} returned a value of {shown(value)}: "
                "it must be a number from 0 to 1, or None"
            )
    return score


def _candidate(branch: "SearchBranch") -> Candidate:
    spans: list[StepSpan] = []
    start = 0
    marks = _marks(branch)
    for step in branch.steps:
        stop = start + len(step.tokens)
        spans.append(StepSpan(start, stop, step.text, marked=step.stop in marks))
        start = stop
    return Candidate(
        problem=branch.run.problem,
        tokens=tuple(branch.tokens),
        steps=tuple(spans),
        thinking=branch.thinking_text,
        conclusion=branch.conclusion_text,
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


def _record(branch: "SearchBranch", verifier: Verifier, score: Score) -> None:
    nodes = branch.trail.nodes[1:]
    if score.steps and len(score.steps) == len(nodes):
        for node, value in zip(nodes, score.steps, strict=True):
            node.scores[verifier.name] = value
    elif nodes:
        nodes[-1].scores[verifier.name] = score.value
    if nodes and verifier.sound:
        nodes[-1].verified = score.verified
