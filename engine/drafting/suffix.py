"""Suffix decoding over the branches of one search (Oliaro et al. 2024, "SuffixDecoding", arXiv 2411.04975).

Siblings repeat each other: what one branch wrote behind a context, another is likely to write. The corpus of
a group is what its live and finished branches hold; it is never shared between searches or namespaces.
"""

from collections.abc import Sequence as Seq

from ..kv.account import Account
from ..protocol import SeqId
from ..sched.sequence import Sequence
from .automaton import ROOT, SuffixAutomaton

SHORTEST = 2
"""Tokens of context that a guess needs at least."""

LEAST_SHARE = 0.3
"""A follower is proposed if at least this share of the cases went on with it."""

MOST_TOKENS = 1 << 16
"""Tokens of one group that are remembered: a state takes about 0.5 kB, so a corpus stays under 64 MB."""

_GroupKey = SeqId | tuple[Account, str]


class SuffixDrafter:
    """One automaton per group: the sequences of one account (a search) under one namespace; with `alone` each
    sequence is a group of its own, whose drafts depend on nothing else."""

    def __init__(self, *, alone: bool = False) -> None:
        self._alone = alone
        self._groups: dict[_GroupKey, Group] = {}

    def propose(self, sequence: Sequence, k: int, paths: int) -> Seq[Seq[int]]:
        group = self.group(sequence)
        group.follow(sequence)
        cursor = group.cursors[sequence.id]
        if cursor.count < sequence.known:  # the corpus is full
            return ()
        return group.automaton.paths(cursor.state, k, paths, SHORTEST, LEAST_SHARE)

    def observe(self, sequence: Sequence) -> None:
        self.group(sequence).follow(sequence)

    def forget(self, sequence: Sequence) -> None:
        """What the branch wrote stays with its group, until the last sequence of the search has ended."""
        key = self._key(sequence)
        group = self._groups.get(key)
        if group is not None:
            group.cursors.pop(sequence.id, None)
            if self._alone or sequence.account.sequences == 0:
                del self._groups[key]

    def group(self, sequence: Sequence) -> "Group":
        """The corpus that the sequence reads from and adds to."""
        key = self._key(sequence)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group()
        return group

    def _key(self, sequence: Sequence) -> _GroupKey:
        return sequence.id if self._alone else (sequence.account, sequence.namespace)


class _Cursor:
    """How far a sequence was read: `count` tokens, the last of which is `last`; `state` stands for them."""

    __slots__ = ("count", "last", "state")

    def __init__(self) -> None:
        self.count = 0
        self.last = -1
        self.state = ROOT

    def behind(self, tokens: Seq[int]) -> bool:
        """Whether `tokens` still begin with what was read, as far as its end shows."""
        return self.count == 0 or (self.count <= len(tokens) and tokens[self.count - 1] == self.last)


class Group:
    """The corpus of one search."""

    def __init__(self) -> None:
        self.automaton = SuffixAutomaton()
        self.cursors: dict[SeqId, _Cursor] = {}
        self._tokens = 0

    def follow(self, sequence: Sequence) -> None:
        """Read what the sequence gained."""
        cursor, tokens = self.cursors.get(sequence.id), sequence.tokens
        if cursor is None or not cursor.behind(tokens):
            cursor = self.cursors[sequence.id] = _Cursor()
            self._skip_known(cursor, tokens)
        for token in tokens[cursor.count :]:
            if self._tokens >= MOST_TOKENS:
                return
            cursor.state = self.automaton.extend(cursor.state, token)
            cursor.count, cursor.last = cursor.count + 1, token
            self._tokens += 1

    def _skip_known(self, cursor: _Cursor, tokens: Seq[int]) -> None:
        """The start that another branch wrote already is not a second case of it."""
        for token in tokens:
            state = self.automaton.step(cursor.state, token)
            if state is None:
                return
            cursor.state = state
            cursor.count, cursor.last = cursor.count + 1, token
