"""Text that must fit a grammar, and that a server writes."""

from collections.abc import Sequence
from typing import NamedTuple

from ..text.grammar import Constraint


class Narrowed(NamedTuple):
    """What the next request is kept to: a JSON `schema` from its first token on, or one token `among` these.
    Neither for a request that may write anything."""

    schema: str | None = None
    among: tuple[int, ...] | None = None


FREE = Narrowed()


class Constrained:
    """The grammar of one extension, and how the server is kept to it.

    A server's own grammar begins with its completion. So it is told the schema only where the text begins;
    behind that (a lease ended, a stream broke, the branch was forked or cut) the server writes freely. Either
    way each token is checked here. The first that does not fit is dropped, and the next request draws one
    token among those that fit. Behind a server's grammar the log-probabilities are not known (it tells those
    of what the grammar left), so that it is not told the schema where more than one per token is asked for.

    That draws as a mask would: with p(A) the weight of what fits, a token x that fits comes first with p(x),
    and after a dropped one with p(x) / p(A), in all p(x) + (1 - p(A)) p(x) / p(A) = p(x) / p(A).
    """

    def __init__(
        self, constraint: Constraint, tokens: Sequence[int], vocab_size: int, *, detailed: bool
    ) -> None:
        """`tokens` are those of the sequence, `vocab_size` the logits of the model. `detailed`: alternatives
        or statistics are asked for."""
        self._start = constraint.start
        self._length = len(tokens)
        self._schema = None if detailed else constraint.grammar.schema
        self._state = constraint.grammar.begin(tokens[constraint.start :], vocab_size)
        self._among: tuple[int, ...] | None = None

    @property
    def finished(self) -> bool:
        """Nothing may follow."""
        return self._state.finished

    @property
    def redraws(self) -> bool:
        """Whether a token was dropped, so that the next request is for one among those that fit."""
        return self._among is not None

    @property
    def narrowed(self) -> Narrowed:
        """What the next request is kept to."""
        if self._among is not None:
            return Narrowed(among=self._among)
        return Narrowed(schema=self._schema) if self._length == self._start else FREE

    def without_schema(self) -> None:
        """The server does not take it: it writes freely from the start."""
        self._schema = None

    def accepts(self, token: int) -> bool:
        return self._state.accepts(token)

    def push(self, token: int) -> None:
        self._state.push(token)
        self._length += 1
        self._among = None

    def redraw(self) -> bool:
        """What came was dropped. Returns whether any token fits."""
        allowed = self._state.allowed()
        self._among = () if allowed is None else tuple(allowed.nonzero()[0].tolist())
        return bool(self._among)
