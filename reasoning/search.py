"""One problem in progress: what a strategy drives."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import structlog
from anyio.streams.memory import MemoryObjectSendStream

from ..engine.errors import UsageError
from ..engine.text.tokenizer import Message
from ..strategies.base import Branch
from ..verifiers.answer import canonical
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from ..verifiers.vote import Ballot, Select, select
from .branch import SearchBranch
from .caps import under
from .events import Noted, Offered
from .failure import said
from .graph import SearchGraph
from .ledger import Cap
from .run import Run
from .solution import CandidateRecord
from .view import CapView, LedgerView

log = structlog.get_logger(__name__)


class Offer:
    """A candidate as it stood when it was offered."""

    def __init__(self, branch: SearchBranch) -> None:
        task = branch.run.problem.task
        self.branch = branch
        self.text = branch.text
        self.path = branch.path
        self.record = CandidateRecord(
            id=branch.id,
            answer=branch.answer,
            score=branch.score,
            verified=branch.verified,
            tokens=len(branch.tokens),
            stop=str(branch.steps[-1].stop) if branch.steps else "",
            complete=branch.complete,
            mean_logprob=branch.mean_logprob,
        )
        answer = self.record.answer
        if answer is None:
            self.key = None
        else:
            self.key = canonical(answer) if task is None else task.canonical(answer)

    def ballot(self) -> Ballot:
        """The candidate as the vote sees it."""
        record = self.record
        return Ballot(
            order=self.path,
            key=self.key,
            score=record.score,
            logprob=record.mean_logprob,
            complete=record.complete,
            verified=record.verified,
        )


class TreeSearch:
    """Implements `strategies.base.Search`. `on_solved` is called once a sound verifier passed an offered
    candidate, `on_interrupt` where a `KeyboardInterrupt` reached the strategy's code."""

    def __init__(
        self,
        run: Run,
        *,
        prompt: Sequence[int],
        selection: Select,
        on_solved: Callable[[], None] | None,
        on_interrupt: Callable[[], None],
    ) -> None:
        self.run = run
        self._selection = selection
        self._on_solved = on_solved
        self._on_interrupt = on_interrupt
        self._offers: dict[tuple[int, ...], Offer] = {}
        self._incumbent: Offer | None = None
        self._fresh = True
        self._roots = 1
        self.solved = False
        self.root = SearchBranch.open(run, (0,), prompt, run.problem.text, run.policy)

    @property
    def problem(self) -> Problem:
        return self.run.problem

    @property
    def verifier(self) -> Verifier | None:
        return self.run.verifier

    @property
    def budget(self) -> LedgerView:
        return LedgerView(self.run.ledger)

    @property
    def graph(self) -> SearchGraph:
        return self.run.graph

    @property
    def incumbent(self) -> SearchBranch | None:
        """The branch that a stop would return now."""
        best = self.best_offer
        return None if best is None else best.branch

    @property
    def best_offer(self) -> Offer | None:
        """The incumbent as it was offered."""
        if not self._fresh:
            offers = [self._offers[path] for path in sorted(self._offers)]
            index = select([offer.ballot() for offer in offers], self._selection)
            self._incumbent = None if index is None else offers[index]
            self._fresh = True
        return self._incumbent

    @property
    def offers(self) -> list[Offer]:
        """All candidates, by branch path."""
        return [self._offers[path] for path in sorted(self._offers)]

    def offer(self, branch: Branch) -> None:
        branch = _own(branch)
        self.run.touch()
        if not branch.tokens:
            return
        offer = Offer(branch)
        self._offers[branch.path] = offer
        self._fresh = False
        if branch.complete and offer.record.answer is not None:
            self.run.ledger.release_reserve()
        if self.run.watched:
            best = self.best_offer
            self.run.emit(
                Offered,
                branch=branch.id,
                answer=offer.record.answer,
                incumbent=best.record.id if best else None,
                incumbent_answer=best.record.answer if best else None,
            )
        if branch.verified is True and not self.solved and self._on_solved is not None:
            self.solved = True
            self._on_solved()

    @asynccontextmanager
    async def each(
        self, branches: Iterable[Branch], fn: Callable[[Branch], Awaitable[Any]]
    ) -> AsyncIterator[AsyncIterator[Branch]]:
        """Run `fn` on all branches side by side; see `strategies.base.Search.each`."""
        todo = [_own(branch) for branch in branches]
        handed: set[tuple[int, ...]] = set()
        failure: BaseException | None = None
        self.run.touch()
        async with anyio.create_task_group() as group:
            sender, receiver = anyio.create_memory_object_stream[SearchBranch](len(todo) + 1)

            async def completed() -> AsyncGenerator[Branch]:
                async for branch in receiver:
                    self.run.touch()
                    handed.add(branch.path)
                    yield branch

            for branch in todo:
                group.start_soon(self._run_one, branch, fn, sender.clone(), group.cancel_scope)
            sender.close()
            iterator = completed()
            try:
                yield iterator
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # a task group would wrap it
                failure = error
            finally:
                self.run.touch()
                group.cancel_scope.cancel()
                await iterator.aclose()
                receiver.close()
                for branch in todo:
                    if branch.path not in handed:
                        branch.prune("left unfinished")
        if failure is not None:
            raise failure

    async def _run_one(
        self,
        branch: SearchBranch,
        fn: Callable[[Branch], Awaitable[Any]],
        sender: MemoryObjectSendStream[SearchBranch],
        scope: anyio.CancelScope,
    ) -> None:
        with sender:
            if scope.cancel_called:  # the block was left before this one began
                return
            try:
                await fn(branch)
            except KeyboardInterrupt:
                self._on_interrupt()
                return
            except (Exception, SystemExit) as error:
                branch.error = error
                self.run.failures.append(error)
                branch.prune(f"failed: {said(error)}")
                log.warning("branch failed", branch=branch.id, error=said(error), kind=type(error).__name__)
                return
            self.run.touch()
            with contextlib.suppress(anyio.BrokenResourceError):
                sender.send_nowait(branch)

    async def open(self, prompt: str | Sequence[int], *, model: str = "policy") -> SearchBranch:
        self.run.touch()
        await anyio.lowlevel.checkpoint()
        info = self.run.model(model)
        if isinstance(prompt, str):
            tokens = info.tokenizer.chat([Message("user", prompt)], think=self.run.think)
            text = prompt
        else:
            tokens, text = list(prompt), info.tokenizer.decode(prompt)
        branch = SearchBranch.open(self.run, (self._roots,), tokens, text, model)
        self._roots += 1
        return branch

    @asynccontextmanager
    async def phase(
        self, name: str, *, tokens: int | None = None, flops: int | None = None
    ) -> AsyncIterator[CapView]:
        """A nested cap; see `strategies.base.Search.phase`."""
        cap = Cap(name=name, tokens=tokens, flops=flops)
        with under(cap):
            yield CapView(self.run.ledger, cap)

    def note(self, event: str, **fields: Any) -> None:
        fields = msgspec.json.decode(msgspec.json.encode(fields, enc_hook=repr))
        self.run.graph.notes.append({"note": event, **fields})
        self.run.notes.append(event)
        self.run.emit(Noted, text=event, fields=fields)


def _own(branch: Branch) -> SearchBranch:
    if not isinstance(branch, SearchBranch):
        raise UsageError(f"{type(branch).__name__} is not a branch of this search")
    return branch
