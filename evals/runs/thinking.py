"""How long the chains of a sample thought, from what the strategy noted."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """One chain's thinking, as `strategies.chain` notes it.

    `tokens` of thinking, forced ones included; how many ends of thinking were taken back; whether a limit cut
    it, or an early exit ended it; the limits that were asked for, None for none.
    """

    branch: str
    tokens: int
    waits: int
    cut: bool
    early_exit: bool
    at_least: int | None = None
    at_most: int | None = None

    @property
    def within(self) -> bool | None:
        """Whether its length lies within its limits; None where there are none."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least or 0) <= self.tokens and (self.at_most is None or self.tokens <= self.at_most)


def thinking_of(node_link: Mapping[str, Any]) -> tuple[Thinking, ...]:
    """The chains that a graph's notes tell of, in their order; none for other strategies."""
    notes = node_link.get("graph", {}).get("notes", ())
    return tuple(
        msgspec.convert(note, Thinking)
        for note in notes
        if note.get("note") == "thinking" and "early_exit" in note
    )
