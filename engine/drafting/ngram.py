"""Prompt lookup (Saxena 2023, "Prompt Lookup Decoding"): what followed the sequence's end the last time."""

from collections.abc import Sequence as Seq

from ..protocol import SeqId
from ..sched.sequence import Sequence

SHORTEST = 2
"""Tokens that must match at least: a single one recurs everywhere."""

LONGEST = 32
"""Tokens compared at most: among matches this long the latest is as good as any."""

_PLACES = 8
"""Latest occurrences of a pair that are compared."""


class NgramDrafter:
    """Longest suffix match in the sequence's own tokens; of equally long matches the latest."""

    def __init__(self) -> None:
        self._indexes: dict[SeqId, _PairIndex] = {}

    def propose(self, sequence: Sequence, k: int, paths: int) -> Seq[Seq[int]]:
        self.observe(sequence)
        tokens = sequence.tokens
        place = self._indexes[sequence.id].longest_match(tokens)
        if place is None:
            return ()
        # Copying past the end goes on with what was just copied, as a loop does.
        period = len(tokens) - place
        return [[tokens[place + offset % period] for offset in range(k)]]

    def observe(self, sequence: Sequence) -> None:
        index = self._indexes.get(sequence.id)
        if index is None:
            index = self._indexes[sequence.id] = _PairIndex()
        index.follow(sequence.tokens)

    def forget(self, sequence: Sequence) -> None:
        self._indexes.pop(sequence.id, None)


class _PairIndex:
    """Where each run of `SHORTEST` tokens ended, latest last."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._indexed = SHORTEST - 1

    def follow(self, tokens: Seq[int]) -> None:
        """Note the tokens that are new, but for the last pair: it is what is looked up."""
        for end in range(self._indexed + 1, len(tokens)):
            ends = self._ends.setdefault(tuple(tokens[end - SHORTEST : end]), [])
            ends.append(end)
            if len(ends) > _PLACES:
                del ends[0]
        self._indexed = max(self._indexed, len(tokens) - 1)

    def longest_match(self, tokens: Seq[int]) -> int | None:
        """The position behind the earlier occurrence that agrees longest with the end of `tokens`."""
        ends = self._ends.get(tuple(tokens[-SHORTEST:]), ())
        return max(ends, key=lambda end: (_agreement(tokens, end), end), default=None)


def _agreement(tokens: Seq[int], end: int) -> int:
    """How many tokens before `end` equal those at the end of all."""
    limit, length, last = min(end, LONGEST), SHORTEST, len(tokens)
    while length < limit and tokens[end - 1 - length] == tokens[last - 1 - length]:
        length += 1
    return length
