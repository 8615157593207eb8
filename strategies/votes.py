"""What a vote over samples says so far: pure functions of the classes of their answers, by branch id.

None is an abstention: it is a sample, and never a vote.
"""

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Final


class Pending(enum.Enum):
    """A sample that has not ended: it may yet vote for anything, or abstain."""

    PENDING = enum.auto()


PENDING: Final = Pending.PENDING

Vote = str | None
"""The class of an answer, None for an abstention."""


def tally(votes: Sequence[Vote]) -> list[tuple[str, int]]:
    """Votes of each class: the most first, of equals the first seen."""
    return Counter(vote for vote in votes if vote is not None).most_common()


def leaders(votes: Sequence[Vote]) -> list[str]:
    """The classes with the most votes, the first seen first: more than one where they tie."""
    counted = tally(votes)
    return [name for name, count in counted if count == counted[0][1]]


def leading_share(votes: Sequence[Vote]) -> float:
    """The leader's votes among all samples, abstentions included; 0 without any."""
    counted = tally(votes)
    return counted[0][1] / len(votes) if counted else 0.0


def unanimous(window: Sequence[Vote]) -> bool:
    """Whether all samples of a window gave one answer. An abstention agrees with nothing."""
    return bool(window) and window[0] is not None and len(set(window)) == 1


def certain_winner(votes: Sequence[Vote | Pending]) -> str | None:
    """The class that wins whatever the pending samples will say; None while that is open.

    Of a tie the class wins that was seen first, by branch id, so the bound c1 - c2 > N - n of the vote over n
    of N samples is met with equality where the rival, even with all pending votes, would be seen later.
    """
    known: list[Vote] = [None if isinstance(vote, Pending) else vote for vote in votes]
    counted = tally(known)
    if not counted:
        return None
    pending = [place for place, vote in enumerate(votes) if isinstance(vote, Pending)]
    never = len(votes)
    leader, most = counted[0]
    first = known.index(leader)
    rivals = [(count, known.index(name)) for name, count in counted[1:]]
    if pending:
        rivals.append((0, never))  # an answer that nobody gave so far
    for count, seen in rivals:
        could_have = count + len(pending)
        seen = min(seen, pending[0]) if pending else seen
        if could_have > most or (could_have == most and seen < first):
            return None
    return leader
