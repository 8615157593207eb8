"""The invariants of paged KV, recounted from scratch. `Engine(check=True)` runs this after every step; tests
always do.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ..sched.plan import TRASH_BLOCK
from .account import Account
from .pool import BlockPool, BlockState
from .prefix import PrefixIndex


class InvariantError(AssertionError):
    """The KV bookkeeping contradicts itself: a bug of the engine."""


class TableView(NamedTuple):
    """One table as its holder sees it: `positions` stand in it, `viewers` visible sequences hold KV through
    it, and its first `published` blocks hold `tokens` and can be found.
    """

    account: Account
    blocks: tuple[int, ...]
    positions: int
    viewers: int
    published: int
    tokens: list[int]


def check_memory(
    pool: BlockPool,
    index: PrefixIndex,
    tables: Collection[TableView],
    accounts: Collection[Account],
) -> None:
    """Raise `InvariantError` unless all of it holds. Between steps: no planned write holds a block."""
    _check_counts(pool)
    _check_references(pool, tables)
    for view in tables:
        _check_table(pool, index, view)
    _check_cached(pool)
    _check_accounts(pool, tables, accounts)


def _require(condition: bool, message: str, *values: object) -> None:
    if not condition:
        raise InvariantError(f"{message}: {values}")


def _check_counts(pool: BlockPool) -> None:
    """free + cached + owned == total, and each figure equals a recount."""
    states = Counter(pool.state(block) for block in range(1, pool.num_blocks))
    _require(states[BlockState.FREE] == pool.free, "free blocks", states, pool.free)
    _require(states[BlockState.CACHED] == pool.cached, "cached blocks", states, pool.cached)
    _require(states[BlockState.OWNED] == pool.owned, "owned blocks", states, pool.owned)
    _require(pool.free + pool.cached + pool.owned == pool.total, "blocks lost", states, pool.total)
    pinned = [block for block in range(1, pool.num_blocks) if pool.pinned(block)]
    kept = sum(pool.refs(block) == 0 for block in pinned)
    _require(kept == pool.pinned_cached, "pinned blocks", kept, pool.pinned_cached)
    for block in pinned:
        parent = pool.parent(block)
        _require(pool.published(block), "a pinned block is not published", block)
        _require(parent == TRASH_BLOCK or pool.pinned(parent), "the parent is not pinned", block, parent)
    _require(pool.refs(TRASH_BLOCK) == 0, "the trash block is held", pool.refs(TRASH_BLOCK))


def _check_references(pool: BlockPool, tables: Collection[TableView]) -> None:
    """ref(b) == tables that hold b."""
    holders: Counter[int] = Counter()
    for view in tables:
        holders.update(view.blocks)
        _require(len(set(view.blocks)) == len(view.blocks), "a block twice in one table", view.blocks)
    for block in range(1, pool.num_blocks):
        _require(
            pool.refs(block) == holders[block], "references of block", block, pool.refs(block), holders[block]
        )
        writable = pool.refs(block) == 1 and not pool.published(block)
        _require(pool.writable(block) == writable, "writable", block)


def _check_table(pool: BlockPool, index: PrefixIndex, view: TableView) -> None:
    """The table covers exactly its positions, every block holds at least what the table believes."""
    size = pool.block_size
    _require(len(view.blocks) == -(-view.positions // size), "table length", view.blocks, view.positions)
    _require(view.positions <= len(view.tokens), "computed beyond known", view.positions, len(view.tokens))
    for number, block in enumerate(view.blocks):
        seen = min(size, view.positions - number * size)
        _require(pool.filled[block] >= seen, "filled less than seen", block, pool.filled[block], seen)
    for number in range(view.published):
        block = view.blocks[number]
        content = tuple(view.tokens[number * size : (number + 1) * size])
        _require(index.content(block) == content, "published content", block, content)


def _check_cached(pool: BlockPool) -> None:
    """Cached blocks are full, and all of them can be handed out."""
    for block in range(1, pool.num_blocks):
        if pool.published(block):
            _require(pool.filled[block] == pool.block_size, "a published block is not full", block)
            parent = pool.parent(block)
            _require(parent == TRASH_BLOCK or pool.published(parent), "orphan", block, parent)
    children = Counter(pool.parent(block) for block in range(1, pool.num_blocks) if pool.published(block))
    for block in range(1, pool.num_blocks):
        _require(pool.children(block) == children[block], "child count of block", block, children[block])


def _check_accounts(pool: BlockPool, tables: Collection[TableView], accounts: Collection[Account]) -> None:
    """Each account equals a recount over the tables that count into it."""
    for account in accounts:
        mine = [view for view in tables if view.account is account]
        holders = Counter(block for view in mine for block in view.blocks)
        _require(account.holders() == dict(holders), "holders of account", account.holders(), holders)
        held = sum(pool.filled[block] for block in holders)
        _require(account.held == held, "held positions", account.held, held)
        unshared = sum(view.positions * view.viewers for view in mine)
        _require(account.unshared == unshared, "unshared positions", account.unshared, unshared)
