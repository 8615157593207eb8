"""Drafts under the ratio test, which stand until they are used up.

There the text depends on which positions had a draft, and on which one. So that a seed gives the same text
under any load, both are functions of the sequence's own history: a draft is decided once, at its first
position, and every position of it is tested against it, in however many steps and with however few rows ahead
the engine finds room for. The position behind a draft that was accepted whole is drawn without a test, and
the next one begins behind that.
"""

from collections.abc import Sequence as Seq
from typing import NamedTuple

from ..protocol import SeqId
from ..sampling.drafting import Proposal
from .sequence import Sequence


class _Draft(NamedTuple):
    """Decided when `start` positions were known; without proposals that position is drawn plainly."""

    start: int
    proposals: tuple[Proposal, ...]

    def agreed(self, tokens: Seq[int]) -> int:
        """How many of its tokens stand on the sequence, in a row from its start."""
        count = 0
        for proposal, token in zip(self.proposals, tokens[self.start :], strict=False):
            if proposal.token != token:
                break
            count += 1
        return count


class StandingDrafts:
    """At most one draft per sequence."""

    def __init__(self) -> None:
        self._drafts: dict[SeqId, _Draft] = {}

    def put(self, sequence: Sequence, proposals: Seq[Proposal]) -> None:
        """Decide the draft, perhaps none, that starts at the sequence's end."""
        self._drafts[sequence.id] = _Draft(sequence.known, tuple(proposals))

    def rest(self, sequence: Sequence) -> tuple[Proposal, ...] | None:
        """What of its draft lies ahead; None where one is to be decided for the next position."""
        draft = self._drafts.get(sequence.id)
        if draft is None:
            return None
        ahead = sequence.known - draft.start
        if not 0 <= ahead <= len(draft.proposals) or draft.agreed(sequence.tokens) < ahead:
            return None
        return draft.proposals[ahead:]

    def result(self, sequence: Sequence) -> tuple[int, int]:
        """(drafted, accepted) tokens of the draft that has ended; zeros where there was none."""
        draft = self._drafts.get(sequence.id)
        return (0, 0) if draft is None else (len(draft.proposals), draft.agreed(sequence.tokens))

    def forget(self, sequence: Sequence) -> None:
        """The sequence was cut or has ended."""
        self._drafts.pop(sequence.id, None)
