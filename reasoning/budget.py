"""What one problem may cost."""

from typing import Annotated

import msgspec
from msgspec import Meta

from ..engine.errors import UsageError
from .shared import SharedBudget, check_limits

Positive = Annotated[int, Meta(ge=1)]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Every given field is a hard limit (design section 3).

    `tokens`: positions committed to any branch by any model. `flops`: logical work. `seconds`: wall clock
    of the run. `kv_tokens`: policy positions owned at once. `answer_reserve`: tokens kept back for the
    answer phase; None gives `min(256, tokens // 8)` to models that have one. `parent`: a budget that it draws
    from together with others, as hard as its own limits.
    """

    tokens: Positive | None = None
    flops: Positive | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    kv_tokens: Positive | None = None
    answer_reserve: Annotated[int, Meta(ge=0)] | None = None
    parent: SharedBudget | None = None

    def __post_init__(self) -> None:
        check_limits(
            "budget", tokens=self.tokens, flops=self.flops, seconds=self.seconds, kv_tokens=self.kv_tokens
        )
        if self.answer_reserve is not None and self.answer_reserve < 0:
            raise UsageError(f"budget answer_reserve={self.answer_reserve}: give 0 or more tokens")
        if self.tokens is not None and (self.answer_reserve or 0) >= self.tokens and self.answer_reserve:
            raise UsageError(
                f"budget answer_reserve={self.answer_reserve} leaves no token of tokens={self.tokens} "
                "for thinking: give a smaller reserve"
            )

    def reserve(self, *, thinks: bool) -> int:
        """Tokens kept back for the answer phase of a model that thinks; 0 for others."""
        limits = [self.tokens, None if self.parent is None else self.parent.tokens_left]
        tokens = min((limit for limit in limits if limit is not None), default=None)
        if not thinks or tokens is None:
            return 0
        return min(256, tokens // 8) if self.answer_reserve is None else self.answer_reserve
