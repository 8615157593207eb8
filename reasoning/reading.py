"""Reading scores of what stands on a branch: one metered request to the engine, in the clock's order."""

from typing import TYPE_CHECKING

from ..engine.protocol import ScoreParams, Scores
from .caps import caps_in_force
from .clock import TicketKind
from .graph import Node
from .meter import BranchMeter
from .track import Track

if TYPE_CHECKING:
    from .branch import SearchBranch


async def read_scores(
    branch: "SearchBranch",
    model: str,
    *,
    reward_at: tuple[int, ...] = (),
    logprobs_from: int | None = None,
    top_logprobs: int = 0,
) -> Scores:
    """Scores of the branch under `model`, at absolute positions of its mirror there. Refused scores are
    empty. The caller says `run.outside` for the wait."""
    run = branch.run
    mirror = branch.mirror(model)
    with run.ledger.lock:
        if model == run.policy and not run.take_kv(branch, 0):
            return Scores(refused=True)
        ticket = run.clock.begin(branch.path, TicketKind.SCORE)
    nodes, starts = mirror.layout(branch.trail.nodes)
    closed_end = Node(id="", branch="", kind="", start=mirror.length, seed=0)
    track = Track(branch, nodes, closed_end, starts)
    meter = BranchMeter(run, ticket, track, caps_in_force(), answering=True)
    params = ScoreParams(
        reward_at=reward_at,
        logprobs_from=logprobs_from,
        top_logprobs=top_logprobs,
        order=branch.path,
        priority=run.priority,
    )
    try:
        scores = await run.backend.score(mirror.seq, params, meter)
        await run.clock.finish(ticket)
    except BaseException:
        with run.ledger.lock:
            run.clock.drop(ticket)
        raise
    return scores


async def read_logprobs(branch: "SearchBranch", model: str, start: int) -> tuple[float, ...] | None:
    """Raw log-probabilities of the branch's tokens from `start` on (as in `Branch.tokens`); None where they
    are refused."""
    branch.sequence(model)
    scores = await read_scores(branch, model, logprobs_from=len(branch.prompt) + start)
    return None if scores.refused else scores.logprobs
