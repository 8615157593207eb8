"""A budget that several searches draw from."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..engine.errors import UsageError

Limit = TypeVar("Limit", int, float)


def least(one: Limit | None, other: Limit | None) -> Limit | None:
    """The tighter of two limits; None is none."""
    return other if one is None else one if other is None else min(one, other)


def check_limits(what: str, **limits: float | None) -> None:
    """Raises `UsageError` for a limit that is given and not above 0."""
    for name, value in limits.items():
        if value is not None and not value > 0:
            raise UsageError(f"{what} {name}={value}: give a number above 0, or leave it out")


class SharedBudget:
    """One budget for many searches, side by side or one after the other: the parent of their `Budget`s.

    `tokens` and `flops` as in `Budget`, of all children together; `seconds` run from here. Every given field
    is hard: what one child was granted, no other can have. What a child keeps for its answer is set aside at
    its start, as far as there is so much, so that its siblings cannot take it.

    With a `parent` it draws from that one too, together with others: a grant is one at every level, or none.

    Who gets the last tokens depends on who asks first: a search is reproducible as long as the parent has
    enough for all. Children may run on engines of different threads.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        flops: int | None = None,
        seconds: float | None = None,
        parent: "SharedBudget | None" = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        check_limits("shared budget", tokens=tokens, flops=flops, seconds=seconds)
        self.tokens = tokens
        self.flops = flops
        self.seconds = seconds
        self.parent = parent
        self.tokens_spent = 0
        self.flops_spent = 0
        self._set_aside = 0
        self._lock = threading.Lock()
        self._now = now
        self._started_s = now()

    @property
    def limits_tokens(self) -> bool:
        """Whether tokens are limited, here or further up."""
        return self.tokens is not None or (self.parent is not None and self.parent.limits_tokens)

    @property
    def limits_flops(self) -> bool:
        """Whether flops are limited, here or further up."""
        return self.flops is not None or (self.parent is not None and self.parent.limits_flops)

    @property
    def tokens_left(self) -> int | None:
        """Tokens that nobody was granted and that are set aside for nobody; None for no limit."""
        return least(self._own_tokens_left, None if self.parent is None else self.parent.tokens_left)

    @property
    def flops_left(self) -> int | None:
        return least(self._own_flops_left, None if self.parent is None else self.parent.flops_left)

    @property
    def seconds_left(self) -> float | None:
        own = None if self.seconds is None else max(0.0, self.seconds - (self._now() - self._started_s))
        return least(own, None if self.parent is None else self.parent.seconds_left)

    @property
    def _own_tokens_left(self) -> int | None:
        return None if self.tokens is None else self.tokens - self.tokens_spent - self._set_aside

    @property
    def _own_flops_left(self) -> int | None:
        return None if self.flops is None else self.flops - self.flops_spent

    def share(self, reserve: int) -> "Share":
        """A child begins, which would keep `reserve` tokens for its answer."""
        return Share(self, self._keep(reserve))

    # Locks are taken from a child to its parent, never the other way.

    def _keep(self, tokens: int) -> int:
        """Set tokens aside at every level, as many as there are at each; returns how many."""
        with self._lock:
            left = self._own_tokens_left
            kept = tokens if left is None else min(tokens, left)
            if self.parent is not None:
                kept = self.parent._keep(kept)
            self._set_aside += kept
            return kept

    def _take(self, tokens: int, flops: int, kept: int) -> bool:
        """Grant it at every level, `kept` of the tokens from what was set aside, or nothing at all."""
        with self._lock:
            tokens_left, flops_left = self._own_tokens_left, self._own_flops_left
            if tokens_left is not None and tokens - kept > tokens_left:
                return False
            if flops_left is not None and flops > flops_left:
                return False
            if self.parent is not None and not self.parent._take(tokens, flops, kept):
                return False
            self._book(tokens, flops, kept)
            return True

    def _give_back(self, tokens: int, flops: int, kept: int) -> None:
        with self._lock:
            if self.parent is not None:
                self.parent._give_back(tokens, flops, kept)
            self._book(-tokens, -flops, kept)

    def _book(self, tokens: int, flops: int, kept: int) -> None:
        self.tokens_spent += tokens
        self.flops_spent += flops
        self._set_aside -= kept


class Share:
    """What one search has of a shared budget: what is left there for anyone, and `kept` tokens more for its
    answers. Called under its ledger's lock."""

    def __init__(self, shared: SharedBudget, kept: int) -> None:
        self.kept = kept
        self.refused = False
        """The shared budget did not cover something that the search asked for."""
        self._shared = shared

    @property
    def limits_tokens(self) -> bool:
        return self._shared.limits_tokens

    @property
    def limits_flops(self) -> bool:
        return self._shared.limits_flops

    @property
    def flops_left(self) -> int | None:
        return self._shared.flops_left

    @property
    def seconds_left(self) -> float | None:
        return self._shared.seconds_left

    def tokens_left(self, *, answering: bool) -> int | None:
        left = self._shared.tokens_left
        return None if left is None else left + (self.kept if answering else 0)

    def take(self, tokens: int, flops: int, *, answering: bool) -> bool:
        """Grant it or nothing at all; answers take first what is kept for them."""
        kept = min(tokens, self.kept) if answering else 0
        if not self._shared._take(tokens, flops, kept):
            self.refused = True
            return False
        self.kept -= kept
        return True

    def give_back(self, tokens: int, flops: int) -> None:
        """It was granted and then not used."""
        self._shared._give_back(tokens, flops, 0)

    def release(self) -> None:
        """Nothing need be kept for the answer any more."""
        self._shared._give_back(0, 0, self.kept)
        self.kept = 0
