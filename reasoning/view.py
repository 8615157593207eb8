"""Read-only views of what is left, for strategies."""

from .ledger import Cap, Ledger


class LedgerView:
    """Implements `strategies.base.BudgetView` on the whole run."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def tokens_spent(self) -> int:
        return self._ledger.tokens_spent

    @property
    def tokens_left(self) -> int | None:
        return self._ledger.tokens_left(answering=False)

    @property
    def flops_left(self) -> int | None:
        return self._ledger.flops_left

    @property
    def seconds_left(self) -> float | None:
        return self._ledger.seconds_left

    @property
    def spent(self) -> bool:
        return self._ledger.spent or self.tokens_left == 0


class CapView:
    """The same for a nested cap: the tighter of the two counts."""

    def __init__(self, ledger: Ledger, cap: Cap) -> None:
        self._outer = LedgerView(ledger)
        self._cap = cap

    @property
    def tokens_spent(self) -> int:
        return self._cap.tokens_spent

    @property
    def tokens_left(self) -> int | None:
        return _tighter(self._outer.tokens_left, self._cap.tokens, self._cap.tokens_spent)

    @property
    def flops_left(self) -> int | None:
        return _tighter(self._outer.flops_left, self._cap.flops, self._cap.flops_spent)

    @property
    def seconds_left(self) -> float | None:
        return self._outer.seconds_left

    @property
    def spent(self) -> bool:
        return self._outer.spent or self.tokens_left == 0 or self.flops_left == 0


def _tighter(outer: int | None, limit: int | None, used: int) -> int | None:
    inner = None if limit is None else max(0, limit - used)
    known = [value for value in (outer, inner) if value is not None]
    return min(known) if known else None
