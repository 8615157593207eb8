"""What a meter reserved for a request, until it is told what became of it."""

import msgspec

from ..protocol import Meter, Work


class Grant:
    """One granted `Work`. Commits and the refund come in parts whose sum is the grant: rows chunk by chunk,
    heads with their rows, the token with its sample.
    """

    __slots__ = ("_meter", "open")

    def __init__(self, meter: Meter, work: Work) -> None:
        self._meter = meter
        self.open: Work | None = work

    def commit(self, end: int, *, sampled: bool) -> None:
        """Rows below `end` were computed in a step that was committed, and the token was drawn if
        `sampled`.
        """
        work = self.open
        if work is None:
            return
        rows_done, heads_done = end >= work.start + work.rows, not work.heads or work.heads[-1] < end
        if rows_done and heads_done and (sampled or not work.tokens):
            self.open = None
            self._meter.commit(work)
            return
        rows = min(max(end - work.start, 0), work.rows)
        heads = tuple(position for position in work.heads if position < end)
        tokens = work.tokens if sampled else 0
        if rows or heads or tokens:
            self.open = msgspec.structs.replace(
                work,
                start=work.start + rows,
                rows=work.rows - rows,
                heads=work.heads[len(heads) :],
                tokens=work.tokens - tokens,
            )
            self._meter.commit(msgspec.structs.replace(work, rows=rows, heads=heads, tokens=tokens))

    def commit_cached(self, end: int) -> None:
        """The KV of the rows below `end` stands in the cache: they count as computed, their heads do not."""
        work = self.open
        rows = min(max(end - work.start, 0), work.rows) if work is not None else 0
        if work is None or rows == 0:
            return
        self.open = msgspec.structs.replace(work, start=work.start + rows, rows=work.rows - rows)
        self._meter.commit(msgspec.structs.replace(work, rows=rows, heads=(), tokens=0))

    def refund(self) -> Work | None:
        """Hand back what was not computed; returns it."""
        work, self.open = self.open, None
        if work is not None:
            self._meter.refund(work)
        return work
