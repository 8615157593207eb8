"""The account of one budget: what was spent, what may still be, and which branch starts next when it is
scarce."""

import threading
import time
from collections.abc import Callable

import msgspec

from .budget import Budget


class Cap(msgspec.Struct, kw_only=True, eq=False):
    """A nested limit on what is spent while it is in force (`Search.phase`)."""

    name: str
    tokens: int | None = None
    flops: int | None = None
    tokens_spent: int = 0
    flops_spent: int = 0

    def covers(self, tokens: int, flops: int) -> bool:
        """Whether the cap leaves room for this much more."""
        return (self.tokens is None or self.tokens_spent + tokens <= self.tokens) and (
            self.flops is None or self.flops_spent + flops <= self.flops
        )


class Ledger:
    """Spent and reserved tokens and flops of one run, charged from the engine's thread and the event loop's.

    A charge is all or nothing, so `tokens_spent <= budget.tokens` whatever the concurrency. Thinking sees
    the budget less `reserve`; the reserve is there so that a run ends with an answer, and is let go with
    the first complete one.
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
        """The run is over: whoever still asks is refused."""
        self._reserve = budget.reserve(thinks=thinks)
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

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._started_s

    @property
    def seconds_left(self) -> float | None:
        limit = self.budget.seconds
        return None if limit is None else max(0.0, limit - self.elapsed_s)

    def tokens_left(self, *, answering: bool) -> int | None:
        """Tokens that a branch may still be granted, None for no limit."""
        if self.budget.tokens is None:
            return None
        kept = 0 if answering else self._reserve
        return max(0, self.budget.tokens - kept - self.tokens_spent)

    @property
    def flops_left(self) -> int | None:
        return None if self.budget.flops is None else max(0, self.budget.flops - self.flops_spent)

    def charge(self, tokens: int, flops: int, caps: tuple[Cap, ...], *, answering: bool) -> bool:
        """Reserve `tokens` positions and `flops` work, or nothing at all.

        A refusal is remembered: the search ends with reason budget if it ends with no work it may do.
        """
        with self.lock:
            if self.closed:
                return False
            budget = self.budget
            left = self.tokens_left(answering=answering)
            covered = (
                (left is None or tokens <= left)
                and (budget.flops is None or self.flops_spent + flops <= budget.flops)
                and (budget.seconds is None or self.seconds_left != 0.0)
            )
            if not covered:
                self.refused = True
                return False
            for cap in caps:
                if not cap.covers(tokens, flops):
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
            for cap in caps:
                cap.tokens_spent -= tokens
                cap.flops_spent -= flops

    @property
    def spent(self) -> bool:
        """Whether a limit was reached: no token left for anyone, no time, or work refused for its flops."""
        if self.seconds_left == 0.0:
            return True
        if self.tokens_left(answering=True) == 0:
            return True
        return self.budget.flops is not None and self.refused
