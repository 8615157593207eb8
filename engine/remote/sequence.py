"""A sequence that a remote server continues: its ids, and which rows and heads of it were paid for."""

from collections.abc import Sequence

import anyio

from ..protocol import EngineUsage, Work, WorkKind
from ..sched.heads import PaidHeads
from .wire import ServedUsage

_SERVED = ("prefill_tokens", "recomputed_tokens", "cached_tokens")
"""Figures of `EngineUsage` that a server tells where it reports cached tokens."""


class _PaidRows:
    """Which rows of a branch path were granted: all below `paid`, and those of the trunk below `start`.

    Siblings share the rows before their fork whoever pays for them first, as they share their KV.
    """

    __slots__ = ("paid", "start", "trunk")

    def __init__(self, trunk: "_PaidRows | None", start: int) -> None:
        self.trunk = trunk
        self.start = start
        self.paid = start

    def first_unpaid(self) -> int:
        if self.trunk is not None and (row := self.trunk.first_unpaid()) < self.start:
            return row
        return self.paid

    def set(self, end: int, *, low: int) -> None:
        """All rows below `end` are paid, of those from `low` on no other."""
        if self.trunk is not None and low < self.start:
            self.trunk.set(min(end, self.start), low=low)
        self.paid = max(end, self.start)

    def truncate(self, position: int) -> None:
        self.start = min(self.start, position)
        self.paid = min(self.paid, position)


class RemoteSequence:
    """Implements `TokenList`. `root` is the key of the server that it goes to, the same for all forks of one
    root; `prompt` the length of what the root was opened with; `salt` keeps its namespace's cache apart, ""
    where there is no namespace.
    """

    def __init__(
        self, tokens: Sequence[int], *, model: str, seed: int, root: bytes, salt: str, usage: EngineUsage
    ) -> None:
        self.tokens = list(tokens)
        self.model = model
        self.seed = seed
        self.root = root
        self.salt = salt
        self.prompt = len(self.tokens)
        self.usage = usage
        self.running: anyio.CancelScope | None = None
        self._rows = _PaidRows(None, 0)
        self._heads = PaidHeads(self.prompt)

    def fork(self, seed: int) -> "RemoteSequence":
        """A child that starts with these tokens; what is paid of them stays paid for both."""
        length = len(self.tokens)
        if self._rows.start != length or self._rows.trunk is None:
            trunk, self._rows = self._rows, _PaidRows(self._rows, length)
            trunk.paid = min(trunk.paid, length)
        child = RemoteSequence(
            self.tokens, model=self.model, seed=seed, root=self.root, salt=self.salt, usage=self.usage
        )
        child.prompt = self.prompt
        child._rows = _PaidRows(self._rows.trunk, length)
        child._heads = self._heads.fork()
        return child

    def append(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)
        self._heads.extend(len(tokens))

    def truncate(self, position: int) -> None:
        del self.tokens[position:]
        self._rows.truncate(position)
        self._heads.truncate(position)

    def next_token(self, ahead: int) -> Work:
        """What the meter is asked for one token more, behind `ahead` that are granted and not yet there."""
        last = len(self.tokens) + ahead - 1
        if ahead:
            return Work(self.model, WorkKind.DECODE, last, 1, (last,), tokens=1)
        start = min(self._rows.first_unpaid(), last + 1)
        rows = last + 1 - start
        kind = WorkKind.PREFILL if rows > 1 else WorkKind.DECODE
        heads = () if self._heads.paid(last) else (last,)
        return Work(self.model, kind, start, rows, heads, tokens=1)

    def logprobs_from(self, position: int) -> Work | None:
        """What the meter is asked for the log-probabilities of the tokens from `position` on, None where all
        of it was paid."""
        end = len(self.tokens) - 1
        start = min(self._rows.first_unpaid(), end)
        heads = tuple(row for row in range(position - 1, end) if not self._heads.paid(row))
        if start == end and not heads:
            return None
        return Work(self.model, WorkKind.SCORE, start, end - start, heads)

    def count_read(self, served: ServedUsage, fresh: int) -> None:
        """Add what a server says that it read to write on; `fresh` rows were never read before."""
        self.usage.prefill_tokens += self._count(served, fresh)

    def count_scored(self, served: ServedUsage, fresh: int) -> None:
        """The same for what it read to score."""
        self.usage.score_tokens += self._count(served, fresh)

    def _count(self, served: ServedUsage, fresh: int) -> int:
        """How many of the `fresh` rows the server computed; the others that it computed were evicted since,
        or it never keeps the last ones. A server that does not tell what its cache held, or tells what cannot
        be, leaves these figures unknown."""
        usage, details = self.usage, served.prompt_tokens_details
        cached = None if details is None else details.cached_tokens
        if cached is None or not 0 <= cached <= served.prompt_tokens:
            usage.unknown = tuple(dict.fromkeys((*usage.unknown, *_SERVED)))
            return fresh
        usage.cached_tokens += cached
        computed = served.prompt_tokens - cached
        usage.recomputed_tokens += max(0, computed - fresh)
        return min(computed, fresh)

    def mark(self, work: Work, *, paid: bool) -> None:
        """The work of rows that stand on the sequence was granted, or given back."""
        self._rows.set(work.start + work.rows if paid else work.start, low=work.start)
        for position in work.heads:
            self._heads.mark(position, paid=paid)
