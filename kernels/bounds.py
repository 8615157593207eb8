"""The least time that each kernel's bytes and operations take: what a measurement is held against.

A bound is the roofline of Williams et al. 2009: bytes that must move, over the bandwidth, or operations over
the rate of the matrix units, whichever takes longer. No kernel can be faster, caches aside: what a step reads
twice from the L2 cache counts once here. Nothing in this file was measured.
"""

from typing import NamedTuple

import msgspec

PARTIAL_BYTES = 4
"""Partial outputs of attention and their log-sum-exp are fp32."""


class Machine(msgspec.Struct, frozen=True):
    """A GPU: bandwidth of its memory as a copy reaches it, dense bf16 rate, and size of the L2 cache."""

    name: str
    bytes_per_s: float
    flops_per_s: float
    l2_bytes: int

    def holds(self, size: float) -> bool:
        """Whether `size` bytes that many rows read stay in the L2 cache: reading them again beats the
        bound of a kernel that does."""
        return size <= self.l2_bytes


H200 = Machine("H200", 4.3e12, 790e12, 60 * 10**6)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What of a model the bounds depend on; weights, activations and KV take `element_bytes` per element."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    intermediate: int
    vocabulary: int
    element_bytes: int = 2

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one position in one layer."""
        return 2 * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def row_bytes(self) -> int:
        """Queries, or attended rows, of one position."""
        return self.heads * self.head_dim * self.element_bytes

    @property
    def slot_bytes(self) -> int:
        """One partial result of all heads: an output and its log-sum-exp."""
        return self.heads * (self.head_dim + 1) * PARTIAL_BYTES

    @property
    def weight_bytes(self) -> int:
        """Weights that a decode step reads: all but the embedding."""
        attention = (2 * self.heads + 2 * self.kv_heads) * self.head_dim * self.hidden
        layer = attention + 3 * self.hidden * self.intermediate
        return (self.layers * layer + self.vocabulary * self.hidden) * self.element_bytes


LLAMA_8B = Shape(
    layers=32, heads=32, kv_heads=8, head_dim=128, hidden=4096, intermediate=14336, vocabulary=128256
)


class Bound(NamedTuple):
    """Bytes to and from memory, and operations of the matrix units."""

    bytes: float
    flops: float = 0.0

    def plus(self, other: "Bound") -> "Bound":
        """Both, one behind the other, as if they could overlap fully."""
        return Bound(self.bytes + other.bytes, self.flops + other.flops)

    def seconds(self, machine: Machine) -> float:
        """The least time on `machine`."""
        return max(self.bytes / machine.bytes_per_s, self.flops / machine.flops_per_s)


class Tree(NamedTuple):
    """One step's attention: query `rows`; the `unique` positions that they see, each counted once; the sum
    `paths` of what each row sees; and `slots`, the partial results, one for each row and work item."""

    rows: int
    unique: int
    paths: int
    slots: int

    def unshared(self) -> "Tree":
        """The same rows with KV of their own and one pass over it each."""
        return Tree(self.rows, self.paths, self.paths, 0)


def tree_attention(shape: Shape, tree: Tree) -> Bound:
    """Attention of one layer: KV and queries in, partial results out."""
    read = tree.unique * shape.kv_bytes + tree.rows * shape.row_bytes
    flops = 4.0 * tree.paths * shape.heads * shape.head_dim
    return Bound(read + tree.slots * shape.slot_bytes, flops)


def merge_states(shape: Shape, tree: Tree) -> Bound:
    """Partial results of one layer in, attended rows out."""
    return Bound(tree.slots * shape.slot_bytes + tree.rows * shape.row_bytes)


def attention(shape: Shape, tree: Tree) -> Bound:
    """Both kernels of one layer."""
    return tree_attention(shape, tree).plus(merge_states(shape, tree))


def sample_rows(shape: Shape, rows: int, *, sweeps: float = 1.0, logit_bytes: int = 4) -> Bound:
    """`sweeps` over the logits; a filtered row needs about two."""
    return Bound(sweeps * rows * shape.vocabulary * logit_bytes)


def matmul(rows: int, inputs: int, outputs: int, element_bytes: int = 2) -> Bound:
    """`x @ weight.T`: operands in once, the product out."""
    elements = rows * inputs + inputs * outputs + rows * outputs
    return Bound(elements * element_bytes, 2.0 * rows * inputs * outputs)


def lmhead_sample(shape: Shape, rows: int) -> Bound:
    """The head's product and a draw from it; no logits are written."""
    return _head(shape, rows)


def lmhead_lse(shape: Shape, rows: int) -> Bound:
    """The head's product and each row's log-sum-exp; no logits are written."""
    return _head(shape, rows)


def _head(shape: Shape, rows: int) -> Bound:
    read = (shape.vocabulary + rows) * shape.hidden * shape.element_bytes
    return Bound(read, 2.0 * rows * shape.vocabulary * shape.hidden)


def rope_kv_write(shape: Shape, rows: int) -> Bound:
    """Packed queries, keys and values in, the same out."""
    packed = (shape.heads + 2 * shape.kv_heads) * shape.head_dim * shape.element_bytes
    return Bound(2 * rows * packed)


def rmsnorm_residual(shape: Shape, rows: int) -> Bound:
    """Two rows in, their sum and its norm out."""
    return Bound(4 * rows * shape.hidden * shape.element_bytes)


def silu_mul(shape: Shape, rows: int) -> Bound:
    """Gate and up in, one row out."""
    return Bound(3 * rows * shape.intermediate * shape.element_bytes)


def copy_blocks(shape: Shape, blocks: int, block_size: int) -> Bound:
    """Whole blocks of `block_size` positions in all layers, in and out."""
    return Bound(2 * blocks * block_size * shape.kv_bytes * shape.layers)


def tree_walk(trees: int, nodes: int, depth: int) -> Bound:
    """Parent, token and draw of each node in; token and node of each level, and one length, out; int32."""
    return Bound(4 * trees * (3 * nodes + 2 * depth + 1))


def chain_verify(shape: Shape, sequences: int) -> Bound:
    """Two rows of fp32 probabilities in for each sequence, from which the last token is drawn; what decides
    on the tokens before it is little beside them."""
    return Bound(2 * sequences * shape.vocabulary * 4)


def decode_step(shape: Shape, tree: Tree, machine: Machine) -> float:
    """Seconds of a whole step: all weights once, and attention in each layer behind them. What lies between
    the products is fused or small."""
    layers = shape.layers * attention(shape, tree).seconds(machine)
    return shape.weight_bytes / machine.bytes_per_s + layers


def best_of(samples: int, prompt: int, answer: int, items: int) -> Tree:
    """`samples` rows behind one prompt, each `answer` positions into its own text; a plan cuts what a row
    sees into `items`."""
    return Tree(samples, prompt + samples * answer, samples * (prompt + answer), samples * items)


def beam(beams: int, kept: int, prompt: int, history: int, current: int, items: int) -> Tree:
    """`beams` rows, `current` positions into a step, children of `kept` paths of `history` positions that
    share nothing but the prompt, which is the worst case."""
    unique = prompt + kept * history + beams * current
    return Tree(beams, unique, beams * (prompt + history + current), beams * items)


def draft_trees(sequences: int, nodes: int, context: int, items: int = 2) -> Tree:
    """A draft tree of `nodes` rows behind each sequence's own context; what a row sees of the tree itself is
    left out."""
    rows = sequences * nodes
    return Tree(rows, sequences * (context + nodes), rows * context, rows * items)
