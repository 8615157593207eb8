"""What a server is started with: names, budgets, limits and keys."""

import msgspec

from ..engine.errors import UsageError
from ..reasoning.budget import Budget
from ..strategies.base import Strategy
from ..strategies.grammar import parse_strategy
from .keys import KeyRing

DEFAULT_STRATEGY = "best_of_n(n=16)"

LIMITS = ("tokens", "flops", "seconds", "kv_tokens")
"""The limits of a budget that a ceiling may bound."""

EFFORTS = {
    "none": 250,
    "minimal": 250,
    "low": 1_000,
    "medium": 4_000,
    "high": 16_000,
    "xhigh": 64_000,
}
"""Tokens of a request by its `reasoning_effort`; with "none" the model is told not to think, too."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the whole server.

    `running`: searches at a time, `waiting`: requests in line for one, both of all keys together.
    `body_bytes`: the largest request. `keep_alive_s`: how often a silent stream sends a comment.
    """

    running: int = 64
    waiting: int = 256
    body_bytes: int = 1 << 20
    keep_alive_s: float = 15.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the model's name to clients. A request without a budget has `budget`; none may have more than
    `ceiling`, whose limits also hold where the request leaves one open. `verifier`, `step` and `speculate`
    are options of every search (`Reasoner.solve`)."""

    name: str
    strategy: Strategy = msgspec.field(default_factory=lambda: parse_strategy(DEFAULT_STRATEGY))
    budget: Budget = Budget(tokens=EFFORTS["medium"])
    ceiling: Budget = Budget(tokens=64_000, seconds=300.0)
    limits: Limits = Limits()
    keys: KeyRing = msgspec.field(default_factory=KeyRing)
    verifier: str | None = None
    step: str | None = None
    speculate: str | None = None


def checked_settings(settings: Settings) -> Settings:
    """`settings`, where they go together. Raises `UsageError` in one line."""
    if settings.ceiling.tokens is None:
        raise UsageError("--ceiling: must limit tokens, such as tokens=64k")
    for name in LIMITS:
        asked, most = getattr(settings.budget, name), getattr(settings.ceiling, name)
        if asked is not None and most is not None and asked > most:
            raise UsageError(f"--budget {name}={asked}: is above --ceiling {name}={most}; lower it")
    return settings
