"""Read-only views of what is left, for strategies."""

from .kv import OwnedKv
from .ledger import Cap, Ledger


class LedgerView:
    """Implements `strategies.base.BudgetView`: the run's account within `caps`, outermost first. What was
    spent is the innermost cap's, what is left the tightest limit's."""

    def __init__(self, ledger: Ledger, kv: OwnedKv, caps: tuple[Cap, ...] = ()) -> None:
        self._ledger = ledger
        self._kv = kv
        self._caps = caps

    @property
    def tokens_spent(self) -> int:
        return self._caps[-1].tokens_spent if self._caps else self._ledger.tokens_spent

    @property
    def tokens_left(self) -> int | None:
        return _tightest(self._tokens_left(answering=False))

    @property
    def answer_reserve(self) -> int:
        thinking, answering = (_tightest(self._tokens_left(answering=kind)) for kind in (False, True))
        return (answering or 0) - (thinking or 0)

    @property
    def flops_left(self) -> int | None:
        return _tightest([self._ledger.flops_left, *(cap.flops_left for cap in self._caps)])

    @property
    def seconds_left(self) -> float | None:
        return self._ledger.seconds_left

    @property
    def kv_owned(self) -> int:
        return self._kv.owned

    @property
    def kv_left(self) -> int | None:
        return None if self._kv.cap is None else max(0, self._kv.cap - self._kv.owned)

    @property
    def spent(self) -> bool:
        capped = any(cap.flops_left == 0 for cap in self._caps)
        return self._ledger.spent or self.tokens_left == 0 or capped

    def _tokens_left(self, *, answering: bool) -> list[int | None]:
        limits = (self._ledger, *self._caps)
        return [limit.tokens_left(answering=answering) for limit in limits]


def _tightest(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
