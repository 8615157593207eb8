"""From a prepared run to a solution: lifetime, limits and the reason of the end."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import structlog

from ..engine.errors import ServerLost, UsageError
from ..strategies.base import Strategy
from ..strategies.grammar import as_dict
from .branch import SearchBranch
from .candidates import Offer
from .events import Ended
from .failure import said, single
from .prompt_scores import score_prompt
from .run import Run
from .search import TreeSearch
from .solution import Reason, Solution, Usage, engine_figures
from .tournament import hold_tournament
from .written import NOTHING

log = structlog.get_logger(__name__)


class _End:
    """Why the search was stopped from outside; None while it was not."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope = scope
        self.reason: Reason | None = None
        self.error: BaseException | None = None

    def stop(self, reason: Reason) -> None:
        if self.reason is None:
            self.reason = reason
        self.scope.cancel()


async def run_search(
    run: Run, strategy: Strategy, prompt: Sequence[int], *, interrupt: anyio.Event | None = None
) -> Solution:
    """Let `strategy` solve the run's problem; returns its incumbent whatever ended it.

    Raises `UsageError` (`CapabilityError` is one) of a search that offered nothing, be it the strategy's or
    that of branches which all failed; any other error of the strategy ends the search with reason failed.
    Cancelling the caller raises, after all branches were pruned.
    """
    seconds = run.ledger.seconds_left
    end = _End(anyio.CancelScope())
    try:
        search = TreeSearch(
            run,
            SearchBranch.open(run, run.next_root(), prompt, run.problem.text, run.policy),
            selection=strategy.selection(),
            on_solved=(lambda: end.stop(Reason.SOLVED)) if strategy.stops_on_verified() else None,
            on_interrupt=lambda: end.stop(Reason.CANCELLED),
        )
        async with _watching(end, interrupt):
            with anyio.move_on_after(seconds) as deadline, end.scope:
                if run.prompt_logprobs is not None:
                    run.prompt = await score_prompt(search.root, run.prompt_logprobs)
                await _run_strategy(strategy, search, end)
            if deadline.cancelled_caught:
                end.stop(Reason.DEADLINE)
    finally:
        run.close()
    error = end.error or (_error(run, search, end) if _reason(run, search, end) is Reason.FAILED else None)
    if isinstance(error, UsageError) and not len(search.candidates):
        raise error
    return _solution(run, strategy, search, end)


@contextlib.asynccontextmanager
async def _watching(end: _End, interrupt: anyio.Event | None) -> AsyncIterator[None]:
    """Turn the caller's interrupt into an end of the search."""
    if interrupt is None:
        yield
        return

    async def watch(event: anyio.Event) -> None:
        await event.wait()
        end.stop(Reason.CANCELLED)

    async with anyio.create_task_group() as group:
        group.start_soon(watch, interrupt)
        yield
        group.cancel_scope.cancel()


async def _run_strategy(strategy: Strategy, search: TreeSearch, end: _End) -> None:
    try:
        await strategy.run(search)
        await search.candidates.compare()
        await hold_tournament(search.candidates, search.verifier)
    except (Exception, SystemExit, KeyboardInterrupt, BaseExceptionGroup) as error:
        found = single(error)
        if isinstance(found, KeyboardInterrupt):
            end.stop(Reason.CANCELLED)
            return
        if not isinstance(found, Exception | SystemExit):
            raise
        end.error = found
        if not isinstance(end.error, UsageError):
            log.error("strategy failed", error=said(found), kind=type(end.error).__name__, exc_info=end.error)


def _reason(run: Run, search: TreeSearch, end: _End) -> Reason:
    if search.solved:
        return Reason.SOLVED
    if end.reason is not None:
        return end.reason
    if _error(run, search, end) is not None:
        return Reason.FAILED
    if run.ledger.seconds_left == 0.0:
        return Reason.DEADLINE
    if run.ledger.refused and (run.ledger.spent or run.kv.refused):
        return Reason.BUDGET
    best = search.candidates.best
    if best is not None and best.record.verified is True:
        return Reason.SOLVED
    return Reason.EXHAUSTED


def _error(run: Run, search: TreeSearch, end: _End) -> BaseException | None:
    """What the search failed of: an error of the strategy, servers that are gone, or branches that all
    failed."""
    if end.error is not None or not run.failures:
        return end.error
    lost = next((error for error in run.failures if isinstance(error, ServerLost)), None)
    return lost or (None if len(search.candidates) else run.failures[0])


def _solution(run: Run, strategy: Strategy, search: TreeSearch, end: _End) -> Solution:
    best, shown = search.candidates.best, search.candidates.shown
    reason = _reason(run, search, end)
    error = end.error if reason is Reason.SOLVED else _error(run, search, end)
    solution = Solution(
        answer=_answer(best),
        text=shown.text if shown else "",
        score=best.record.score if best else None,
        verified=best.record.verified if best else None,
        reason=reason,
        usage=_usage(run, shown),
        candidates=tuple(offer.record for offer in search.candidates),
        graph=run.graph,
        seed=run.seed,
        model=run.model_name,
        strategy=as_dict(strategy),
        notes=tuple(run.notes),
        error=None if error is None else said(error),
        thinking=shown.thinking if shown else "",
        conclusion=shown.conclusion if shown else "",
        written=shown.written if shown else NOTHING,
        calls=best.calls if best else (),
        said=shown.said if shown else "",
        prompt=run.prompt,
    )
    run.graph.ending = _ending(solution, best)
    run.emit(Ended, reason=reason, answer=solution.answer, verified=solution.verified)
    return solution


def _ending(solution: Solution, best: Offer | None) -> dict[str, Any]:
    """What a view of the graph alone has to know of the solution: the same for one seed, as the graph is."""
    return {
        "answer": solution.answer,
        "verified": solution.verified,
        "reason": str(solution.reason),
        "branch": best.record.id if best else None,
        "strategy": solution.strategy,
        "tokens": solution.usage.tokens,
        "flops": solution.usage.flops,
    }


def _answer(best: Offer | None) -> str | None:
    """A candidate that a sound verifier refuted is not an answer."""
    if best is None or best.record.verified is False:
        return None
    return best.record.answer


def _usage(run: Run, shown: Offer | None) -> Usage:
    ledger = run.ledger
    kept = shown.record.tokens if shown else 0
    return Usage(
        tokens=ledger.tokens_spent,
        flops=ledger.flops_spent,
        prompt_tokens=ledger.prompt_tokens,
        scored_tokens=ledger.scored_tokens,
        discarded_tokens=max(0, ledger.tokens_spent - kept),
        engine=engine_figures(run.usage, seconds=ledger.elapsed_s, kv_peak_tokens=run.kv.peak),
    )
