"""Rows behind a decoding request's own: the tokens of a draft, verified in the same step."""


class Ahead:
    """`tokens` stand at the positions behind the span's rows; `fresh` are blocks taken for their KV beyond
    those that the span itself reserved.

    Nothing of it is committed until its token was accepted and granted; then its row is, one at a time.
    """

    __slots__ = ("accepted", "fresh", "tokens")

    def __init__(self, tokens: tuple[int, ...], fresh: list[int]) -> None:
        self.tokens = tokens
        self.fresh = fresh
        self.accepted = 0
        """Tokens that equal the target's and were granted, so far."""
