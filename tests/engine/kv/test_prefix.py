"""The prefix index: what may hit, and what must miss."""

import msgspec
import pytest
from branchwise.engine.kv.pool import BlockPool
from branchwise.engine.kv.prefix import KvIdentity, PrefixIndex

IDENTITY = KvIdentity(weights_digest="w", kv_format="f", block_size=4)
TOKENS = (1, 2, 3, 4)


def publish(pool: BlockPool, index: PrefixIndex, tokens: tuple[int, ...], namespace: str = "") -> int:
    block = pool.allocate()
    pool.filled[block] = pool.block_size
    root = index.root(namespace)
    assert index.publish(block, index.link(root, tokens), root, tokens)
    return block


@pytest.mark.pins("vllm#30931", "vllm#42125", "vllm#17045", "llama.cpp#26207")
@pytest.mark.parametrize(
    ("field", "value"),
    [("weights_digest", "x"), ("adapter", "a"), ("kv_format", "f/deterministic"), ("block_size", 8)],
)
def test_every_field_of_the_identity_is_in_the_root(field: str, value: object) -> None:
    pool = BlockPool(4, 4)
    mine = PrefixIndex(pool, IDENTITY)
    other = PrefixIndex(pool, msgspec.structs.replace(IDENTITY, **{field: value}))
    assert mine.root("tenant") == PrefixIndex(pool, IDENTITY).root("tenant")
    assert mine.root("tenant") != other.root("tenant")


@pytest.mark.pins("vllm#17045")
def test_the_same_tokens_hit_in_their_namespace_and_miss_in_another() -> None:
    pool = BlockPool(4, 4)
    index = PrefixIndex(pool, IDENTITY)
    block = publish(pool, index, TOKENS, "a")
    for namespace, expected in (("a", block), ("b", 0), ("", 0)):
        root = index.root(namespace)
        assert index.find(index.link(root, TOKENS), root, TOKENS) == expected


def test_fields_do_not_run_into_each_other() -> None:
    pool = BlockPool(4, 4)
    first = KvIdentity(weights_digest="ab", adapter="c", kv_format="f", block_size=4)
    second = KvIdentity(weights_digest="a", adapter="bc", kv_format="f", block_size=4)
    assert PrefixIndex(pool, first).root("") != PrefixIndex(pool, second).root("")


def test_a_collision_is_a_miss_and_is_not_published() -> None:
    pool = BlockPool(300, 4)
    index = PrefixIndex(pool, IDENTITY, digest_bytes=1)
    root = index.root("")
    taken: dict[bytes, tuple[int, ...]] = {}
    collisions = 0
    for token in range(40):
        tokens = (token, 0, 0, 0)
        digest = index.link(root, tokens)
        block = pool.allocate()
        pool.filled[block] = 4
        assert index.find(digest, root, tokens) == 0
        published = index.publish(block, digest, root, tokens)
        assert published == (digest not in taken)
        collisions += not published
        taken.setdefault(digest, tokens)
    assert collisions > 0


def test_an_evicted_block_is_forgotten() -> None:
    pool = BlockPool(2, 4)
    index = PrefixIndex(pool, IDENTITY)
    block = publish(pool, index, TOKENS)
    assert index.content(block) == TOKENS
    pool.drop(block)
    assert pool.allocate() == block
    root = index.root("")
    assert index.find(index.link(root, TOKENS), root, TOKENS) == 0
    assert index.content(block) is None
    assert len(index) == 0
