"""How often each token stands on a sequence: what penalties are computed from."""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import count


class TokenCounts:
    """Occurrences by token id, in parallel arrays: `everywhere` counts all of the sequence, `behind_prompt`
    what stands behind its prompt. An id that a truncation took off stays, with counts of 0.

    It follows the tokens of one sequence as KV does: counted up to `counted`, which chases the known tokens.
    So it costs the new tokens only, and neither chunking, preemption nor a cache hit can change it.
    """

    __slots__ = ("_slots", "behind_prompt", "counted", "everywhere", "ids")

    def __init__(self) -> None:
        self.ids = array("q")
        self.everywhere = array("i")
        self.behind_prompt = array("i")
        self.counted = 0
        self._slots: dict[int, int] = {}

    def follow(self, tokens: Sequence[int], prompt_length: int) -> None:
        """Count what `tokens` gained since the last call; the first `prompt_length` are the prompt."""
        self._add(tokens[self.counted : prompt_length], 1, behind=False)
        self._add(tokens[max(self.counted, prompt_length) :], 1, behind=True)
        self.counted = max(self.counted, len(tokens))

    def truncate(self, tokens: Sequence[int], prompt_length: int, position: int) -> None:
        """Take back what stands at `position` and behind it in `tokens`, given as before the truncation."""
        counted = tokens[: self.counted]
        self._add(counted[position:prompt_length], -1, behind=False)
        self._add(counted[max(position, prompt_length) :], -1, behind=True)
        self.counted = min(self.counted, position)

    def standing(self) -> dict[int, tuple[int, int]]:
        """(everywhere, behind the prompt) of each token that stands."""
        rows = zip(self.ids, self.everywhere, self.behind_prompt, strict=True)
        return {token: (everywhere, behind) for token, everywhere, behind in rows if everywhere}

    def fork(self) -> "TokenCounts":
        """The counts of a child that starts here."""
        child = TokenCounts()
        child.ids, child.everywhere, child.behind_prompt = (
            self.ids[:],
            self.everywhere[:],
            self.behind_prompt[:],
        )
        child.counted = self.counted
        child._slots = self._slots.copy()
        return child

    def ahead(self, drafted: Sequence[int]) -> "TokenCounts":
        """The counts as they were if `drafted` tokens stood on the sequence too."""
        counts = self.fork()
        counts._add(drafted, 1, behind=True)
        return counts

    def _add(self, tokens: Sequence[int], sign: int, *, behind: bool) -> None:
        times = Counter(tokens)
        self._make_room([token for token in times if token not in self._slots])
        for token, occurrences in times.items():
            slot = self._slots[token]
            self.everywhere[slot] += sign * occurrences
            if behind:
                self.behind_prompt[slot] += sign * occurrences

    def _make_room(self, ids: Sequence[int]) -> None:
        self._slots.update(zip(ids, count(len(self.ids)), strict=False))
        self.ids.extend(ids)
        self.everywhere.extend([0] * len(ids))
        self.behind_prompt.extend([0] * len(ids))
