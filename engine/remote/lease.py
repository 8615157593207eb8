"""Tokens that a meter granted ahead of the server that will write them."""

from collections import deque

from ..protocol import Meter, Verdict, Work
from .sequence import RemoteSequence


class Lease:
    """The next tokens of one sequence, paid in advance: a request asks for exactly so many, so that no
    server can pass the budget.

    The first one is asked for by the engine, which may wait for it; `grow` asks for more without waiting.
    Each token that comes uses one up. What is left at the end is given back. `fresh_rows`: rows before the
    first token that the server never read.
    """

    def __init__(self, sequence: RemoteSequence, meter: Meter, first: Work) -> None:
        self._sequence = sequence
        self._meter = meter
        self.fresh_rows = first.rows
        self._granted = deque([first])
        sequence.mark(first, paid=True)

    def __len__(self) -> int:
        return len(self._granted)

    def grow(self, most: int) -> None:
        """Up to `most` tokens, as far as the meter grants them now."""
        while len(self._granted) < most:
            work = self._sequence.next_token(len(self._granted))
            if self._meter.grant(work) is not Verdict.GRANTED:
                return
            self._granted.append(work)

    def use(self, token: int) -> None:
        """Put a token that came on the sequence."""
        work = self._granted.popleft()
        self._sequence.append([token])
        if self._granted:
            self._sequence.mark(self._granted[0], paid=True)
        self._meter.commit(work)

    def give_back(self) -> int:
        """Refund what did not come; how many tokens that were."""
        count = len(self._granted)
        if self._granted:
            self._sequence.mark(self._granted[0], paid=False)
        while self._granted:
            self._meter.refund(self._granted.pop())
        return count
