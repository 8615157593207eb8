"""Steps of attention as spans over block tables: one prompt and many answers, beams, drafts, prefills."""

import random
from collections.abc import Sequence

from ....kernels.bounds import Tree
from ....kernels.tables import RowSpan, TreeSpan


def best_of(rows: int, prompt: int, answer: int, size: int) -> list[RowSpan]:
    """`rows` decoding rows, each `answer` positions behind one prompt of `prompt`; blocks of `size`. Where
    the prompt ends within a block, each row has a copy of that one."""
    shared = tuple(range(1, 1 + prompt // size))
    own = -(-(prompt + answer) // size) - len(shared)
    return [
        RowSpan(prompt + answer - 1, 1, (*shared, *_run(1 + len(shared) + row * own, own)))
        for row in range(rows)
    ]


def beam(beams: int, kept: int, prompt: int, history: int, current: int, size: int) -> list[RowSpan]:
    """`beams` rows, `current` positions into a step, children of `kept` paths of `history` positions behind
    one prompt. Prompt and history are whole blocks."""
    assert prompt % size == 0
    assert history % size == 0
    assert beams % kept == 0
    root = _run(1, prompt // size)
    length, own = history // size, -(-current // size)
    paths = [(*root, *_run(1 + len(root) + path * length, length)) for path in range(kept)]
    first = 1 + len(root) + kept * length
    return [
        RowSpan(
            prompt + history + current - 1, 1, (*paths[row * kept // beams], *_run(first + row * own, own))
        )
        for row in range(beams)
    ]


def draft_trees(sequences: int, nodes: int, context: int, size: int, seed: int = 0) -> list[RowSpan]:
    """A random tree of `nodes` draft rows behind each of `sequences` contexts of their own."""
    draw = random.Random(seed)
    blocks = -(-(context + nodes) // size)
    spans: list[RowSpan] = []
    for sequence in range(sequences):
        ancestors = [1]
        for node in range(1, nodes):
            ancestors.append(ancestors[draw.randrange(max(0, node - 5), node)] | 1 << node)
        spans.append(TreeSpan(context, nodes, _run(1 + sequence * blocks, blocks), tuple(ancestors)))
    return spans


def prefills(chunks: Sequence[tuple[int, int]], size: int) -> list[RowSpan]:
    """Chunks (start, rows) of prompts of their own."""
    spans: list[RowSpan] = []
    following = 1
    for start, rows in chunks:
        blocks = -(-(start + rows) // size)
        spans.append(RowSpan(start, rows, _run(following, blocks)))
        following += blocks
    return spans


def beside(spans: Sequence[RowSpan], others: Sequence[RowSpan]) -> list[RowSpan]:
    """Both in one step, with blocks that they do not share."""
    most = max(max(span.blocks) for span in spans)
    return [*spans, *(_with_blocks(span, tuple(most + block for block in span.blocks)) for span in others)]


def unshared(spans: Sequence[RowSpan]) -> list[RowSpan]:
    """The same rows with blocks of their own."""
    found: list[RowSpan] = []
    following = 1
    for span in spans:
        found.append(_with_blocks(span, _run(following, len(span.blocks))))
        following += len(span.blocks)
    return found


def shuffled(spans: Sequence[RowSpan], seed: int = 0) -> list[RowSpan]:
    """The same tables with their blocks in random places of the pool; block 0 stays free."""
    most = max(max(span.blocks) for span in spans)
    places = list(range(1, most + 1))
    random.Random(seed).shuffle(places)
    return [_with_blocks(span, tuple(places[block - 1] for block in span.blocks)) for span in spans]


def tree_of(spans: Sequence[RowSpan], size: int, slots: int) -> Tree:
    """What bounds need of a step that has `slots` partial results; what a draft's row sees of its tree counts
    as if it saw all before it."""
    filled: dict[int, int] = {}
    paths = 0
    for span in spans:
        end = span.start + span.rows
        for place, block in enumerate(span.blocks[: -(-end // size)]):
            filled[block] = max(filled.get(block, 0), min(size, end - place * size))
        paths += sum(span.start + row + 1 for row in range(span.rows))
    return Tree(sum(span.rows for span in spans), sum(filled.values()), paths, slots)


def _run(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


def _with_blocks(span: RowSpan, blocks: tuple[int, ...]) -> RowSpan:
    if isinstance(span, TreeSpan):
        return TreeSpan(span.start, span.rows, blocks, span.ancestors)
    return RowSpan(span.start, span.rows, blocks)
