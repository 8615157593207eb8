"""Rows behind a decoding request's own: a draft, verified in the same step.

A draft is a tree of tokens behind the last known one, given as its paths from there. The first path stands
behind the span's own row, in the blocks that the sequence writes to anyway. Every other path has blocks of
its own from the span's row on, as a forked child would: a copy of the partial tail, then its own rows, that
of the last known token among them. So each row sees the known tokens and its own ancestors and nothing else,
and of the accepted path the blocks are simply kept.

    node 0          1     2      3                        table of the sequence   [p0][p1][t ]
    last token -+- the - cat - sat      first path        the same, and           [p0][p1][t ][+ ]
                |    4                  second path       a copy of t, and        [p0][p1][t'][+']
                +-- a                   (node 4 only is sampled there: its other rows are the first path's)

Nothing of it is committed until a token was accepted and granted; then its row is, one at a time.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from ..sampling.drafting import Proposal
from .plan import Copy


class Path:
    """`tokens` behind the last known one. `blocks` were taken for it and are not the sequence's yet, from
    `first_block` of its table on: of the first path those behind the span's reservation, of another one those
    from the span's row on, the first of them written by `copy` where that is a partial tail. `nodes` number
    the rows of its tokens; from `fresh_from` on they are not rows of an earlier path too.
    """

    __slots__ = ("blocks", "copy", "first_block", "fresh_from", "nodes", "tokens")

    def __init__(
        self, tokens: tuple[int, ...], first_block: int, blocks: list[int], copy: Copy | None = None
    ) -> None:
        self.tokens = tokens
        self.first_block = first_block
        self.blocks = blocks
        self.copy = copy
        self.nodes: list[int] = []
        self.fresh_from = 0

    def take(self, number: int) -> list[int]:
        """Hand over the blocks up to `number` of the table, that one last."""
        count = number - self.first_block + 1
        taken, self.blocks = self.blocks[:count], self.blocks[count:]
        self.first_block += count
        return taken


class Ahead:
    """The paths of one span's draft. `proposals` are what the row of each token of the first path tests: for
    the ratio test only, which knows no other path."""

    __slots__ = ("_children", "accepted", "path", "paths", "proposals")

    def __init__(self, paths: Seq[Path], proposals: Seq[Proposal | None] = ()) -> None:
        self.paths = tuple(paths)
        self.proposals = proposals
        self.accepted = 0
        """Tokens that equal the target's and were granted, so far."""
        self.path = self.paths[0]
        """Whose blocks the sequence has, as far as accepted rows reach."""
        self._children: dict[tuple[int, int], tuple[int, Path]] = {}
        for path in self.paths:
            self._number(path)

    def child(self, node: int, token: int) -> tuple[int, Path] | None:
        """The node behind `node` that holds `token`, and the first path through it; None where none does."""
        return self._children.get((node, token))

    @property
    def nodes(self) -> int:
        """Tokens of the tree; they are numbered from 1."""
        return len(self._children)

    @property
    def rows(self) -> int:
        """Rows that the draft adds to a step: its tokens, and of each further path the last known token."""
        return sum(len(path.tokens) for path in self.paths) + len(self.paths) - 1

    @property
    def longest(self) -> int:
        return max(len(path.tokens) for path in self.paths)

    def copies(self) -> Iterable[Copy]:
        """To be made before the step."""
        return (path.copy for path in self.paths if path.copy is not None)

    def take_blocks(self) -> list[int]:
        """All blocks that were taken and not used; the caller gives them back."""
        blocks = [block for path in self.paths for block in path.blocks]
        for path in self.paths:
            path.blocks = []
        return blocks

    def _number(self, path: Path) -> None:
        node = 0
        for place, token in enumerate(path.tokens):
            found = self._children.get((node, token))
            if found is None:
                found = self._children[node, token] = (len(self._children) + 1, path)
            elif place == path.fresh_from:
                path.fresh_from += 1
            node = found[0]
            path.nodes.append(node)


def distinct(paths: Iterable[Seq[int]]) -> list[tuple[int, ...]]:
    """The paths that are not the beginning of another one, each once, in their order."""
    kept: list[tuple[int, ...]] = []
    for path in dict.fromkeys(map(tuple, paths)):
        if path and not any(other[: len(path)] == path for other in kept):
            kept = [other for other in kept if path[: len(other)] != other]
            kept.append(path)
    return kept
