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

from ..engine.errors import HandleError, UsageError
from ..engine.text.tokenizer import Message
from ..strategies.base import Branch, Strategy
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from ..verifiers.vote import Select
from .branch import SearchBranch
from .candidates import Candidates, Offer
from .caps import caps_in_force, under
from .events import Noted, Offered
from .extension import UNFINISHED
from .failure import said
from .graph import SearchGraph
from .ledger import Cap
from .run import Run
from .tournament import hold_tournament
from .view import LedgerView

log = structlog.get_logger(__name__)


class TreeSearch:
    """Implements `strategies.base.Search`. `on_solved` is called once a sound verifier passed an offered
    candidate, `on_interrupt` where a `KeyboardInterrupt` reached the strategy's code."""

    def __init__(
        self,
        run: Run,
        root: SearchBranch,
        *,
        selection: Select,
        on_solved: Callable[[], None] | None,
        on_interrupt: Callable[[], None],
    ) -> None:
        self.run = run
        self.root = root
        self.candidates = Candidates(selection, run.electorate)
        self.solved = False
        self._opened: list[SearchBranch] = []
        self._on_solved = on_solved
        self._on_interrupt = on_interrupt

    @property
    def problem(self) -> Problem:
        return self.run.problem

    @property
    def verifier(self) -> Verifier | None:
        return self.run.verifier

    @property
    def step_verifier(self) -> Verifier | None:
        return self.run.step_verifier

    @property
    def budget(self) -> LedgerView:
        return LedgerView(self.run.ledger, self.run.kv, caps_in_force())

    @property
    def graph(self) -> SearchGraph:
        return self.run.graph

    @property
    def weights_digest(self) -> str:
        return self.run.model(self.run.policy).weights_digest

    @property
    def incumbent(self) -> SearchBranch | None:
        best = self.candidates.best
        return None if best is None else best.branch

    def offer(self, branch: Branch) -> None:
        branch = _own(branch)
        self.run.touch()
        if branch.tokens:
            self._take(Offer(branch))

    def retire(self, branches: Iterable[Branch]) -> None:
        self.run.touch()
        self.candidates.retire(_own(branch).path for branch in branches)

    def _take(self, offer: Offer) -> None:
        record = offer.record
        self.candidates.add(offer)
        if record.complete and record.answer is not None:
            self.run.ledger.release_reserve()
        if self.run.watched:
            best = self.candidates.best
            self.run.emit(
                Offered,
                branch=record.id,
                answer=record.answer,
                incumbent=best.record.id if best else None,
                incumbent_answer=best.record.answer if best else None,
            )
        if record.verified is True and not self.solved and self._on_solved is not None:
            self.solved = True
            self._on_solved()

    @asynccontextmanager
    async def scope(self, root: Branch, strategy: Strategy) -> AsyncIterator["TreeSearch"]:
        """A nested search; see `strategies.base.Search.scope`."""
        self.run.touch()
        with anyio.CancelScope() as block:
            inside = TreeSearch(
                self.run,
                _own(root),
                selection=strategy.selection(),
                on_solved=block.cancel if strategy.stops_on_verified() else None,
                on_interrupt=self._on_interrupt,
            )
            try:
                yield inside
                await inside.candidates.compare()
                await hold_tournament(inside.candidates, self.run.verifier)
            finally:
                self.run.touch()
                best = inside.candidates.best
                if best is not None:
                    self._take(best)
                inside.prune_all("its scope was left")

    def prune_all(self, reason: str) -> None:
        """Prune what grew from the root, the root apart, and what was opened here."""
        for branch in [*self.run.live_below(self.root.path), *self._opened]:
            branch.prune(reason)

    def select_by(self, rule: Select) -> None:
        self.run.touch()
        self.candidates.select_by(rule)

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
                        branch.prune(UNFINISHED)
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
                if scope.cancel_called and isinstance(error, HandleError):  # it ran on into its own end
                    return
                branch.error = error
                self.run.failures.append(error)
                branch.prune(f"failed: {said(error)}")
                log.warning("branch failed", branch=branch.id, error=said(error), kind=type(error).__name__)
                return
            self.run.touch()
            with contextlib.suppress(anyio.BrokenResourceError):
                sender.send_nowait(branch)

    async def classes(self, branches: Sequence[Branch]) -> list[str | None]:
        """The class of each answer; see `strategies.base.Search.classes`."""
        self.run.touch()
        await anyio.lowlevel.checkpoint()
        by_path = sorted({branch.path: branch for branch in map(_own, branches)}.items())
        answers = [self._answer(branch) for _, branch in by_path]
        await self.run.electorate.compare(answers)
        self.run.touch()
        names = dict(zip([path for path, _ in by_path], self.run.electorate.classes(answers), strict=True))
        return [names[_own(branch).path] for branch in branches]

    def _answer(self, branch: SearchBranch) -> str | None:
        """The branch's answer, read from its text only where it was not offered as it stands."""
        offer = self.candidates.get(branch.path)
        if offer is not None and offer.record.tokens == len(branch.tokens):
            return offer.record.answer
        return branch.answer

    async def open(self, prompt: str | Sequence[int], *, model: str = "policy") -> SearchBranch:
        self.run.touch()
        await anyio.lowlevel.checkpoint()
        info = self.run.model(model)
        if isinstance(prompt, str):
            tokens = info.tokenizer.chat([Message("user", prompt)], think=self.run.think)
            text = prompt
        else:
            tokens, text = list(prompt), info.tokenizer.decode(prompt)
        branch = SearchBranch.open(self.run, self.run.next_root(), tokens, text, model)
        self._opened.append(branch)
        return branch

    @asynccontextmanager
    async def phase(
        self, name: str, *, tokens: int | None = None, flops: int | None = None, answer_reserve: int = 0
    ) -> AsyncIterator[LedgerView]:
        """A nested cap; see `strategies.base.Search.phase`."""
        cap = Cap(name=name, tokens=tokens, flops=flops, answer_reserve=answer_reserve)
        with under(cap):
            yield LedgerView(self.run.ledger, self.run.kv, caps_in_force())

    def note(self, event: str, **fields: Any) -> None:
        fields = msgspec.json.decode(msgspec.json.encode(fields, enc_hook=repr))
        self.run.graph.notes.append({"note": event, **fields})
        if event not in self.run.notes:
            self.run.notes.append(event)
        self.run.emit(Noted, text=event, fields=fields)


def _own(branch: Branch) -> SearchBranch:
    if not isinstance(branch, SearchBranch):
        raise UsageError(f"{type(branch).__name__} is not a branch of this search")
    return branch
