"""What one problem may cost."""

from typing import Annotated

import msgspec
from msgspec import Meta

from ..engine.errors import UsageError

Positive = Annotated[int, Meta(ge=1)]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Every given field is a hard limit (design section 3).

    `tokens`: positions committed to any branch by any model. `flops`: logical work. `seconds`: wall clock
    of the run. `kv_tokens`: policy positions owned at once. `answer_reserve`: tokens kept back for the
    answer phase; None gives `min(256, tokens // 8)` to models that have one.
    """

    tokens: Positive | None = None
    flops: Positive | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    kv_tokens: Positive | None = None
    answer_reserve: Annotated[int, Meta(ge=0)] | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "flops", "seconds", "kv_tokens"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"budget {name}={value}: give a number above 0, or leave it out")
        if self.answer_reserve is not None and self.answer_reserve < 0:
            raise UsageError(f"budget answer_reserve={self.answer_reserve}: give 0 or more tokens")
        if self.tokens is not None and (self.answer_reserve or 0) >= self.tokens and self.answer_reserve:
            raise UsageError(
                f"budget answer_reserve={self.answer_reserve} leaves no token of tokens={self.tokens} "
                "for thinking: give a smaller reserve"
            )

    def reserve(self, *, thinks: bool) -> int:
        """Tokens kept back for the answer phase of a model that thinks; 0 for others."""
        if not thinks or self.tokens is None:
            return 0
        return min(256, self.tokens // 8) if self.answer_reserve is None else self.answer_reserve
