"""A suffix automaton over many growing texts, with counts of what followed each context.

Every state stands for the contexts (runs of tokens) that end at the same places (Blumer et al. 1985); its
link leads to the longest of its suffixes that also ends elsewhere. Built token by token in amortised constant
time (the online construction, started from any state for the next text).
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count

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

    def paths(
        self, state: int, k: int, most: int, shortest: int, least_share: float
    ) -> list[tuple[int, ...]]:
        """At most `most` continuations of at most `k` tokens, the likeliest first.

        A path takes each time what followed the longest known context most often; another one branches off
        where what else followed had the largest chance, by the shares of the cases up to there. A path ends
        where the context is shorter than `shortest`; only what at least `least_share` of the cases went on
        with is taken.
        """
        found: list[tuple[int, ...]] = []
        order = count()
        branches: list[tuple[float, int, tuple[int, ...], int]] = [(-1.0, next(order), (), state)]
        while branches and len(found) < most:
            minus_chance, _, path, place = heappop(branches)
            while len(path) < k:
                place, counts = self._longest_followed(place)
                if self._length[place] < shortest:
                    break
                cases = sum(counts.values())
                likely = [token for token, times in counts.items() if times >= least_share * cases]
                if not likely:
                    break
                best, *others = sorted(likely, key=counts.__getitem__, reverse=True)
                for other in others:
                    branch = (minus_chance * counts[other] / cases, next(order), (*path, other))
                    heappush(branches, (*branch, self._next[place][other]))
                minus_chance *= counts[best] / cases
                path, place = (*path, best), self._next[place][best]
            if path:
                found.append(path)
        return found

    def _longest_followed(self, state: int) -> tuple[int, Mapping[int, int]]:
        """The longest suffix of a context behind which something stood, and how often what did."""
        while state != ROOT and not self._follow[state]:
            state = self._link[state]
        return state, self._follow[state]

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
