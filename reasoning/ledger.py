"""The account of one budget: what was spent, what may still be, and which branch starts next when it is
scarce."""

import threading
import time
from collections.abc import Callable

import msgspec

from .budget import Budget
from .shared import least


class Cap(msgspec.Struct, kw_only=True, eq=False):
    """A nested limit on what is spent while it is in force (`Search.phase`). `answer_reserve`: tokens beyond
    `tokens` that answers may use."""

    name: str
    tokens: int | None = None
    flops: int | None = None
    answer_reserve: int = 0
    tokens_spent: int = 0
    flops_spent: int = 0

    def tokens_left(self, *, answering: bool) -> int | None:
        """Tokens that a branch may still be granted under it, None for no limit."""
        if self.tokens is None:
            return None
        more = self.answer_reserve if answering else 0
        return max(0, self.tokens + more - self.tokens_spent)

    @property
    def flops_left(self) -> int | None:
        return None if self.flops is None else max(0, self.flops - self.flops_spent)

    def covers(self, tokens: int, flops: int, *, answering: bool) -> bool:
        """Whether the cap leaves room for this much more."""
        left = self.tokens_left(answering=answering)
        return (left is None or tokens <= left) and (
            self.flops is None or self.flops_spent + flops <= self.flops
        )


class Ledger:
    """Spent and reserved tokens and flops of one run, charged from the engine's thread and the event loop's.

    A charge is all or nothing, so `tokens_spent <= budget.tokens` whatever the concurrency. Thinking sees
    the budget less `reserve`; the reserve is there so that a run ends with an answer, and is let go with
    the first complete one. Where the budget has a parent, each charge is the parent's too.
    """

    def __init__(self, budget: Budget, *, thinks: bool, now: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.lock = threading.RLock()
        self.tokens_spent = 0
        self.flops_spent = 0
        self.prompt_tokens = 0
        self.scored_tokens = 0
        self.refused = False
        self.closed = False
        self._reserve = budget.reserve(thinks=thinks)
        self._share = None if budget.parent is None else budget.parent.share(self._reserve)
        self._now = now
        self._started_s = now()

    @property
    def reserve(self) -> int:
        """Tokens that only an answer phase may use now."""
        return self._reserve

    def release_reserve(self) -> None:
        """A complete answer stands: thinking may use what was kept for it."""
        with self.lock:
            self._reserve = 0
            if self._share is not None:
                self._share.release()

    def close(self) -> None:
        """The run is over: whoever still asks is refused."""
        with self.lock:
            self.closed = True
            self.release_reserve()

    @property
    def limits_tokens(self) -> bool:
        """Whether tokens are limited at all."""
        return self.budget.tokens is not None or (self._share is not None and self._share.limits_tokens)

    @property
    def limits_flops(self) -> bool:
        """Whether flops are limited at all."""
        return self.budget.flops is not None or (self._share is not None and self._share.limits_flops)

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._started_s

    @property
    def seconds_left(self) -> float | None:
        limit, shared = self.budget.seconds, None if self._share is None else self._share.seconds_left
        return least(None if limit is None else max(0.0, limit - self.elapsed_s), shared)

    def tokens_left(self, *, answering: bool) -> int | None:
        """Tokens that a branch may still be granted, None for no limit."""
        shared = None if self._share is None else self._share.tokens_left(answering=answering)
        return least(self._own_tokens_left(answering=answering), shared)

    @property
    def flops_left(self) -> int | None:
        limit, shared = self.budget.flops, None if self._share is None else self._share.flops_left
        return least(None if limit is None else max(0, limit - self.flops_spent), shared)

    def _own_tokens_left(self, *, answering: bool) -> int | None:
        if self.budget.tokens is None:
            return None
        kept = 0 if answering else self._reserve
        return max(0, self.budget.tokens - kept - self.tokens_spent)

    def _covers(self, tokens: int, flops: int, *, answering: bool) -> bool:
        """Whether the budget, its parent apart, leaves room for this much more."""
        left, limit = self._own_tokens_left(answering=answering), self.budget.flops
        return (
            (left is None or tokens <= left)
            and (limit is None or self.flops_spent + flops <= limit)
            and self.seconds_left != 0.0
        )

    def charge(self, tokens: int, flops: int, caps: tuple[Cap, ...], *, answering: bool) -> bool:
        """Reserve `tokens` positions and `flops` work, or nothing at all.

        A refusal is remembered: the search ends with reason budget if it ends with no work it may do.
        """
        with self.lock:
            if self.closed:
                return False
            if not self._covers(tokens, flops, answering=answering):
                self.refused = True
                return False
            for cap in caps:
                if not cap.covers(tokens, flops, answering=answering):
                    return False
            if self._share is not None and not self._share.take(tokens, flops, answering=answering):
                self.refused = True
                return False
            self.tokens_spent += tokens
            self.flops_spent += flops
            for cap in caps:
                cap.tokens_spent += tokens
                cap.flops_spent += flops
            return True

    def refund(self, tokens: int, flops: int, caps: tuple[Cap, ...]) -> None:
        """Give back what was reserved and then not computed."""
        with self.lock:
            self.tokens_spent -= tokens
            self.flops_spent -= flops
            if self._share is not None:
                self._share.give_back(tokens, flops)
            for cap in caps:
                cap.tokens_spent -= tokens
                cap.flops_spent -= flops

    @property
    def spent(self) -> bool:
        """Whether a limit was reached: no token left for anyone, no time, or work refused for its flops or
        by the parent."""
        if self.seconds_left == 0.0:
            return True
        if self.tokens_left(answering=True) == 0 or (self._share is not None and self._share.refused):
            return True
        return self.limits_flops and self.refused
