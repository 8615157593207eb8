"""Which published block holds the KV of which tokens after which prefix, for one model."""

import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, NewType

import msgspec

from ..sched.plan import TRASH_BLOCK
from .pool import BlockPool

BlockHash = NewType("BlockHash", bytes)

DIGEST_BYTES = 16


class KvIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What two sequences must share before any of their KV may be: another value of any field is always a
    miss.

    `kv_format` names dtype and layout and says whether the numerics are deterministic.
    """

    weights_digest: str
    kv_format: str
    block_size: int
    adapter: str = ""


class _Entry(NamedTuple):
    """What a published block stands for. `before` is the parent block, or the root's digest for a first
    block.
    """

    digest: BlockHash
    before: int | BlockHash
    tokens: tuple[int, ...]


class PrefixIndex:
    """Hash chain over full blocks: `H_i = blake2b-16(H_(i-1), tokens of block i)`, `H_(-1)` the root of a
    namespace.

    A block enters at commit, after the step that wrote it (`publish`), and leaves when the pool evicts it. On
    a hit the tokens and the parent are compared as well, so soundness does not rest on the hash;
    `digest_bytes` below 16 makes collisions common and exists for tests of that.
    """

    def __init__(self, pool: BlockPool, identity: KvIdentity, *, digest_bytes: int = DIGEST_BYTES) -> None:
        self._pool = pool
        self._identity = identity
        self._digest_bytes = digest_bytes
        self._blocks: dict[BlockHash, int] = {}
        self._entries: dict[int, _Entry] = {}
        self._roots: dict[str, BlockHash] = {}
        self.on_publish: Callable[[int, BlockHash], None] = lambda block, digest: None
        self.on_hide: Callable[[BlockHash], None] = lambda digest: None
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return len(self._blocks)

    def identify(self, identity: KvIdentity) -> None:
        """From now on the sequences have another identity: they find nothing of the one before. What stands
        in the cache is evicted in its turn, and found again where its identity comes back."""
        self._identity = identity
        self._roots.clear()

    def root(self, namespace: str) -> BlockHash:
        """The hash before the first block of every sequence of `namespace`."""
        found = self._roots.get(namespace)
        if found is None:
            found = self._roots[namespace] = _root_digest(self._identity, namespace)
        return found

    def link(self, before: BlockHash, tokens: Sequence[int]) -> BlockHash:
        """The hash of the block that holds `tokens` after the chain that ends in `before`."""
        packed = struct.pack(f"<{len(tokens)}i", *tokens)
        return BlockHash(blake2b(before + packed, digest_size=DIGEST_BYTES).digest()[: self._digest_bytes])

    def find(self, digest: BlockHash, before: int | BlockHash, tokens: tuple[int, ...]) -> int:
        """The published block of `tokens` after `before` (parent block, or root); 0 if there is none."""
        block = self._blocks.get(digest, TRASH_BLOCK)
        if block == TRASH_BLOCK:
            return TRASH_BLOCK
        entry = self._entries[block]
        return block if entry.before == before and entry.tokens == tokens else TRASH_BLOCK

    def publish(
        self, block: int, digest: BlockHash, before: int | BlockHash, tokens: tuple[int, ...]
    ) -> bool:
        """Make a full block findable; false where another block's hash collides with its own.

        The caller has looked for an equal block first, and adopts that one instead.
        """
        if digest in self._blocks:
            return False
        self._pool.publish(block, before if isinstance(before, int) else TRASH_BLOCK)
        self._blocks[digest] = block
        self._entries[block] = _Entry(digest, before, tokens)
        self.on_publish(block, digest)
        return True

    def at(self, digest: BlockHash) -> int:
        """The block that is published under `digest`; 0 if there is none."""
        return self._blocks.get(digest, TRASH_BLOCK)

    def content(self, block: int) -> tuple[int, ...] | None:
        """The tokens whose KV a published block holds; None for any other block."""
        entry = self._entries.get(block)
        return entry.tokens if entry is not None else None

    def hide(self, block: int) -> None:
        """No lookup finds the published block any more; it stays with its holders, and is evicted in turn."""
        digest = self._entries[block].digest
        if self._blocks.get(digest) == block:
            self.on_hide(digest)
            del self._blocks[digest]

    def _forget(self, block: int) -> None:
        digest = self._entries.pop(block).digest
        if self._blocks.get(digest) == block:
            del self._blocks[digest]


def _root_digest(identity: KvIdentity, namespace: str) -> BlockHash:
    """Every field behind its length, so that no two different identities write the same bytes."""
    fields = (
        "branchwise-kv-1",
        identity.weights_digest,
        identity.adapter,
        identity.kv_format,
        str(identity.block_size),
        namespace,
    )
    digest = blake2b(digest_size=DIGEST_BYTES)
    for field in fields:
        encoded = field.encode()
        digest.update(struct.pack("<I", len(encoded)))
        digest.update(encoded)
    return BlockHash(digest.digest())
