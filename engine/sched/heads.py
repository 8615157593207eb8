"""Which output heads of one branch path were granted by a meter."""


class _ForkHead:
    """The head of the row at which a branch was forked: one for the parent and all its children."""

    __slots__ = ("paid", "position")

    def __init__(self, position: int, *, paid: bool) -> None:
        self.position = position
        self.paid = paid


class PaidHeads:
    """One mark per position, whatever the cache, a preemption or sharing of KV did since.

    A fork copies the marks; the last row's is shared from then on, because its logits are computed once for
    all who sample from it. Any other head that two branches ask for after they parted is paid by both.
    """

    __slots__ = ("_fork", "_own")

    def __init__(self, length: int) -> None:
        self._own = bytearray(length)
        self._fork: _ForkHead | None = None

    def __len__(self) -> int:
        return len(self._own)

    def paid(self, position: int) -> bool:
        fork = self._fork
        if fork is not None and fork.position == position:
            return fork.paid
        return bool(self._own[position])

    def mark(self, position: int, *, paid: bool) -> None:
        """The head at `position` was granted, or what was granted came back."""
        fork = self._fork
        if fork is not None and fork.position == position:
            fork.paid = paid
        else:
            self._own[position] = paid

    def extend(self, count: int) -> None:
        """`count` positions more, none paid."""
        self._own.extend(bytes(count))

    def truncate(self, length: int) -> None:
        del self._own[length:]
        if self._fork is not None and self._fork.position >= length:
            self._fork = None

    def fork(self) -> "PaidHeads":
        """The marks of a child that starts here."""
        last = len(self._own) - 1
        fork = self._fork
        if fork is None or fork.position != last:
            if fork is not None:
                self._own[fork.position] = fork.paid
            fork = self._fork = _ForkHead(last, paid=bool(self._own[last]))
        child = PaidHeads(0)
        child._own[:] = self._own
        child._fork = fork
        return child
