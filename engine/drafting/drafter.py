"""What proposes the tokens that a step verifies."""

from collections.abc import Sequence as Seq
from typing import Protocol

from ..sched.sequence import Sequence


class Drafter(Protocol):
    """Guesses how a sequence goes on. A bad guess costs rows, never a token: what is generated is the target
    model's, whatever is proposed.
    """

    def propose(self, sequence: Sequence, k: int, paths: int) -> Seq[Seq[int]]:
        """At most `paths` continuations of at most `k` tokens each, the likeliest first; none where nothing
        is likely."""
        ...

    def observe(self, sequence: Sequence) -> None:
        """Tokens were committed to the sequence, or it is about to be drafted for."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence was cut or has ended."""
        ...
