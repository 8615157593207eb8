"""From a prepared run to a solution: lifetime, limits and the reason of the end."""

import contextlib
from collections.abc import AsyncIterator, Sequence

import anyio
import structlog

from ..engine.errors import UsageError
from ..strategies.base import Search, Strategy
from ..strategies.grammar import as_dict
from .events import Ended
from .failure import said, single
from .run import Run
from .search import Offer, TreeSearch
from .solution import Reason, Solution, Usage, engine_figures

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

    Raises `UsageError` (`CapabilityError` is one) of a search that offered nothing; any other error of the
    strategy ends the search with reason failed. Cancelling the caller raises, after all branches were pruned.
    """
    seconds = run.ledger.seconds_left
    end = _End(anyio.CancelScope())
    search = TreeSearch(
        run,
        prompt=prompt,
        selection=strategy.selection(),
        on_solved=(lambda: end.stop(Reason.SOLVED)) if strategy.stops_on_verified() else None,
        on_interrupt=lambda: end.stop(Reason.CANCELLED),
    )
    try:
        async with _watching(end, interrupt):
            with anyio.move_on_after(seconds) as deadline, end.scope:
                await _run_strategy(strategy, search, end)
            if deadline.cancelled_caught:
                end.stop(Reason.DEADLINE)
    finally:
        run.close()
    if isinstance(end.error, UsageError) and not search.offers:
        raise end.error
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


async def _run_strategy(strategy: Strategy, search: Search, end: _End) -> None:
    try:
        await strategy.run(search)
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
    if end.error is not None or (run.failures and not search.offers):
        return Reason.FAILED
    if run.ledger.seconds_left == 0.0:
        return Reason.DEADLINE
    if run.ledger.refused and (run.ledger.spent or run.kv.refused):
        return Reason.BUDGET
    best = search.best_offer
    if best is not None and best.record.verified is True:
        return Reason.SOLVED
    return Reason.EXHAUSTED


def _solution(run: Run, strategy: Strategy, search: TreeSearch, end: _End) -> Solution:
    best = search.best_offer
    error = end.error or (run.failures[0] if run.failures and not search.offers else None)
    reason = _reason(run, search, end)
    solution = Solution(
        answer=_answer(best),
        text=best.text if best else "",
        score=best.record.score if best else None,
        verified=best.record.verified if best else None,
        reason=reason,
        usage=_usage(run, best),
        candidates=tuple(offer.record for offer in search.offers),
        graph=run.graph,
        seed=run.seed,
        model=run.model_name,
        strategy=as_dict(strategy),
        notes=tuple(run.notes),
        error=None if error is None else said(error),
    )
    run.emit(Ended, reason=reason, answer=solution.answer, verified=solution.verified)
    return solution


def _answer(best: Offer | None) -> str | None:
    """A candidate that a sound verifier refuted is not an answer."""
    if best is None or best.record.verified is False:
        return None
    return best.record.answer


def _usage(run: Run, best: Offer | None) -> Usage:
    ledger = run.ledger
    kept = best.record.tokens if best else 0
    return Usage(
        tokens=ledger.tokens_spent,
        flops=ledger.flops_spent,
        prompt_tokens=ledger.prompt_tokens,
        scored_tokens=ledger.scored_tokens,
        discarded_tokens=max(0, ledger.tokens_spent - kept),
        engine=engine_figures(run.usage, seconds=ledger.elapsed_s, kv_peak_tokens=run.kv.peak),
    )
