"""A suffix automaton over many growing texts, with counts of what followed each context.

Every state stands for the contexts (runs of tokens) that end at the same places (Blumer et al. 1985); its
link leads to the longest of its suffixes that also ends elsewhere. Built token by token in amortised constant
time (the online construction, started from any state for the next text).
"""

from collections.abc import Mapping

ROOT = 0

COUNTED_LINKS = 16
"""Contexts per place whose followers are counted, the longest first: a guess is read off a long one."""


class SuffixAutomaton:
    """States are plain numbers; `ROOT` is the empty context."""

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._follow: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]

    def __len__(self) -> int:
        """States; at most twice the tokens added."""
        return len(self._link)

    def next(self, state: int) -> Mapping[int, int]:
        """Tokens that may follow, and the states they lead to."""
        return self._next[state]

    def step(self, state: int, token: int) -> int | None:
        """The state of a text that stands already and goes on with `token`; None where none does. Counts
        nothing: the start that two branches share is one text.
        """
        target = self._next[state].get(token)
        return target if target is not None and self._length[target] == self._length[state] + 1 else None

    def extend(self, state: int, token: int) -> int:
        """A text whose state is `state` gained `token`; its new state."""
        target = self._next[state].get(token)
        if target is None:
            target = self._add(state, token)
        elif self._length[target] != self._length[state] + 1:
            target = self._split(state, token, target)
        self._count(state, token)
        return target

    def followers(self, state: int, k: int, shortest: int, least_share: float) -> list[int]:
        """At most `k` tokens: each time the one that followed the longest known context most often.

        Ends where that context is shorter than `shortest`, or its best follower had less than `least_share`
        of the cases.
        """
        found: list[int] = []
        while len(found) < k:
            while state != ROOT and not self._follow[state]:
                state = self._link[state]
            counts = self._follow[state]
            if self._length[state] < shortest or not counts:
                break
            best = max(counts, key=counts.__getitem__)
            if counts[best] < least_share * sum(counts.values()):
                break
            found.append(best)
            state = self._next[state][best]
        return found

    def _new(self, length: int, link: int) -> int:
        self._next.append({})
        self._follow.append({})
        self._link.append(link)
        self._length.append(length)
        return len(self._link) - 1

    def _add(self, state: int, token: int) -> int:
        added = self._new(self._length[state] + 1, ROOT)
        place = state
        while place >= 0 and token not in self._next[place]:
            self._next[place][token] = added
            place = self._link[place]
        if place >= 0:
            shorter = self._next[place][token]
            if self._length[shorter] != self._length[place] + 1:
                shorter = self._split(place, token, shorter)
            self._link[added] = shorter
        return added

    def _split(self, state: int, token: int, target: int) -> int:
        """The contexts of `target` up to the length behind `state` get a state of their own: from now on they
        end at a place where the longer ones do not."""
        own = self._new(self._length[state] + 1, self._link[target])
        self._next[own] = dict(self._next[target])
        self._follow[own] = dict(self._follow[target])
        self._link[target] = own
        place = state
        while place >= 0 and self._next[place].get(token) == target:
            self._next[place][token] = own
            place = self._link[place]
        return own

    def _count(self, state: int, token: int) -> None:
        for _ in range(COUNTED_LINKS):
            follow = self._follow[state]
            follow[token] = follow.get(token, 0) + 1
            state = self._link[state]
            if state < 0:
                return
