"""One model's KV memory: which sequence holds which block. Every change of a table, a count or an account is
made here.
"""

from collections import Counter

import msgspec

from ..kv.account import Account
from ..kv.pins import Pins
from ..kv.pool import BlockPool
from ..kv.prefix import BlockHash, KvIdentity, PrefixIndex
from ..protocol import EngineUsage, ModelInfo
from .plan import Copy
from .sequence import Sequence


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """Blocks taken for the writes of one planned span; `blocks` is the table it will have. Nothing is
    committed yet.
    """

    copy: Copy | None
    fresh: tuple[int, ...]
    blocks: tuple[int, ...]


class ModelMemory:
    """Pool, prefix index and accounts of one model; `name` is its role in the engine."""

    def __init__(self, name: str, info: ModelInfo, pool: BlockPool, index: PrefixIndex) -> None:
        self.name = name
        self.info = info
        self.pool = pool
        self.index = index
        self.pins = Pins(pool, index)
        self.block_size = pool.block_size
        self.max_len = min(info.max_model_len, pool.total * pool.block_size)
        """Positions one sequence can have at most: the model's context, or what the whole pool holds."""
        self._accounts: dict[int, Account] = {}
        self._leaving: Counter[int] = Counter()
        self._touched: set[Account] = set()

    def join_account(self, usage: EngineUsage) -> Account:
        """This model's account that writes to `usage`, for one sequence more."""
        account = self._accounts.get(id(usage))
        if account is None:
            account = self._accounts[id(usage)] = Account(usage)
        account.sequences += 1
        return account

    def leave_account(self, account: Account) -> None:
        """A sequence ended; the account of none is forgotten."""
        account.sequences -= 1
        if account.sequences == 0:
            del self._accounts[id(account.usage)]

    def accounts(self) -> tuple[Account, ...]:
        return tuple(self._accounts.values())

    def settle(self) -> None:
        """A step or a batch of commands is complete: accounts take their peaks."""
        for account in self._touched:
            account.settle()
        self._touched.clear()

    def reload(self, info: ModelInfo, identity: KvIdentity) -> None:
        """The model has other weights from now on; no sequence may be open on it."""
        assert not self._accounts, self.name
        self.info = info
        self.index.identify(identity)

    # Holding and dropping

    def set_computed(self, seq: Sequence, positions: int) -> None:
        """The only place where `computed` changes."""
        seq.account.grow_unshared((positions - seq.computed) * seq.weight)
        self._touched.add(seq.account)
        seq.computed = positions
        seq.computed_once = max(seq.computed_once, positions)

    def add_weight(self, seq: Sequence, weight: int) -> None:
        """Visible sequences joined (negative: left) those that hold KV through `seq`, all the way up its
        chain.
        """
        node: Sequence | None = seq
        while node is not None:
            node.weight += weight
            node.account.grow_unshared(weight * node.computed)
            node = node.trunk
        self._touched.add(seq.account)

    def share(self, source: Sequence, target: Sequence, positions: int) -> None:
        """`target`, which holds nothing, takes the blocks of the first `positions` of `source` by
        reference.
        """
        assert not target.table.blocks, target.id
        assert positions <= source.computed, (positions, source.computed)
        count = -(-positions // self.block_size)
        blocks = source.table.blocks
        if count < len(blocks):
            blocks = blocks[:count]
        for block in blocks:
            self.pool.share(block)
            target.account.hold(block, self.pool.filled[block])
        target.table.assign(blocks)
        target.published = min(source.published, positions // self.block_size)
        self.set_computed(target, positions)

    def hand_over(self, source: Sequence, target: Sequence) -> None:
        """`target` takes the table of `source`, which holds nothing afterwards."""
        assert not target.table.blocks, target.id
        target.table.assign(source.table.blocks)
        source.table.assign(())
        target.published, source.published = source.published, 0
        positions = source.computed
        self.set_computed(source, 0)
        self.set_computed(target, positions)

    def drop_blocks(self, seq: Sequence, *, dead: bool = False) -> None:
        """Give all blocks back; the published ones stay in the cache. Of a dead branch, what it added itself
        is evicted first.
        """
        blocks = seq.table.trim(0)
        shared = seq.born // self.block_size if dead else len(blocks)
        self._release(seq, blocks[shared:], dead=dead)
        self._release(seq, blocks[:shared])
        seq.published = 0
        self.set_computed(seq, 0)

    def cut(self, seq: Sequence, positions: int) -> None:
        """Hold no more than the first `positions`."""
        if positions >= seq.computed:
            return
        self._release(seq, seq.table.trim(-(-positions // self.block_size)))
        seq.published = min(seq.published, positions // self.block_size)
        self.set_computed(seq, positions)
        if positions % self.block_size and self.pool.writable(seq.table.blocks[-1]):
            self._fill(seq, len(seq.table) - 1, positions)

    # Prefix cache

    def cached_ahead(self, seq: Sequence, limit: int) -> tuple[int, ...]:
        """Published blocks that hold the next positions of `seq`, as far as they go below `limit`.

        The limit is what was granted: KV never stands beyond what a meter knows of, else what a branch pays
        would depend on the cache.
        """
        size, index, tokens = self.block_size, self.index, seq.tokens
        start = seq.computed // size
        if seq.computed % size or seq.published < start:
            return ()
        before: int | BlockHash = seq.table.blocks[-1] if start else index.root(seq.namespace)
        found: list[int] = []
        for number in range(start, limit // size):
            content = tuple(tokens[number * size : (number + 1) * size])
            block = index.find(self.block_hash(seq, number), before, content)
            if not block:
                break
            found.append(block)
            before = block
        return tuple(found)

    def adopt(self, seq: Sequence, blocks: tuple[int, ...]) -> None:
        """Take what `cached_ahead` found. It is committed KV of some earlier step: nothing is written."""
        for block in blocks:
            self.pool.adopt(block)
            seq.account.hold(block, self.pool.filled[block])
        seq.table.assign(seq.table.blocks + blocks)
        seq.published += len(blocks)
        once = seq.computed_once
        self.set_computed(seq, seq.computed + len(blocks) * self.block_size)
        seq.computed_once = once

    def pin(self, seq: Sequence, until: float) -> int:
        """Keep the whole blocks of the sequence in the cache until `until`; how many positions that is."""
        count = seq.known // self.block_size
        self.pins.pin(seq.id, tuple(self.block_hash(seq, number) for number in range(count)), until)
        return count * self.block_size

    def block_hash(self, seq: Sequence, number: int) -> BlockHash:
        """The chain hash of the full block `number` of `seq`."""
        size, hashes = self.block_size, seq.hashes
        while len(hashes) <= number:
            before = hashes[-1] if hashes else self.index.root(seq.namespace)
            start = len(hashes) * size
            hashes.append(self.index.link(before, seq.tokens[start : start + size]))
        return hashes[number]

    def hide(self, seq: Sequence) -> None:
        """No request finds the published blocks of `seq` from now on: their KV may not be sound."""
        for block in seq.table.blocks[: seq.published]:
            self.index.hide(block)

    # Writing: reserve in the plan, then install or give back

    def tail_shared(self, seq: Sequence) -> bool:
        """Whether the next write goes into a block that others hold too, or that is published."""
        if seq.computed % self.block_size == 0:
            return False
        tail = seq.table.blocks[-1]
        return self.pool.published(tail) or self.pool.refs(tail) - self._leaving[tail] > 1

    def blocks_needed(self, seq: Sequence, end: int) -> int:
        """Blocks to allocate before positions `computed <= p < end` can be written."""
        if end <= seq.computed:
            return 0
        return -(-end // self.block_size) - len(seq.table) + self.tail_shared(seq)

    def reach(self, seq: Sequence, end: int, blocks: int) -> int:
        """The largest position <= `end` up to which `blocks` new blocks let `seq` write."""
        blocks -= self.tail_shared(seq)
        if blocks < 0:
            return min(end, seq.computed)
        return min(end, (len(seq.table) + blocks) * self.block_size)

    def reserve(self, seq: Sequence, end: int) -> Reservation:
        """Take the blocks for writing up to `end`; the caller has checked that they are available."""
        table = seq.table
        if end <= seq.computed:
            return Reservation(None, (), table.blocks)
        copy, replaced = None, None
        if self.tail_shared(seq):
            copy = Copy(table.blocks[-1], self.pool.allocate())
            replaced = (len(table) - 1, copy.target)
            self._leaving[copy.source] += 1
        count = -(-end // self.block_size) - len(table)
        fresh = tuple(self.pool.allocate() for _ in range(count)) if count else ()
        return Reservation(copy, fresh, table.with_writes(replaced, fresh))

    def install(self, seq: Sequence, reservation: Reservation, end: int) -> None:
        """The step wrote the KV up to `end`: the reserved blocks are the table's now, full ones are
        published.
        """
        start = seq.computed
        if end <= start:
            return
        account, copy = seq.account, reservation.copy
        for block in reservation.fresh:
            account.hold(block, 0)
        seq.table.assign(reservation.blocks)
        if copy is not None:
            self._move_to_copy(seq, copy)
        self._touched.add(account)
        for number in range(start // self.block_size, len(seq.table)):
            self._fill(seq, number, end)
        self.set_computed(seq, end)
        if end // self.block_size > seq.published:
            self._publish(seq)

    def give_back(self, reservation: Reservation) -> None:
        """The step did not happen."""
        self.pool.drop_all(reservation.fresh)
        copy = reservation.copy
        if copy is not None:
            self._leaving[copy.source] -= 1
            self.pool.drop(copy.target)

    def pending_copies(self) -> Counter[int]:
        """Planned copies per source block; empty between steps."""
        return +self._leaving

    def swap_tail(self, seq: Sequence, block: int) -> None:
        """`seq` holds `block`, with the same KV, in the place of its partial tail."""
        number = len(seq.table) - 1
        tail = seq.table.blocks[number]
        seq.table.replace(number, block)
        self._hold_instead(seq, block, tail)

    def _move_to_copy(self, seq: Sequence, copy: Copy) -> None:
        """`seq` holds the copy from now on and no longer the shared block."""
        self._leaving[copy.source] -= 1
        self._hold_instead(seq, copy.target, copy.source)
        seq.account.usage.copied_blocks += 1

    def _hold_instead(self, seq: Sequence, block: int, dropped: int) -> None:
        """The table names `block` already, which holds what `dropped` held of the sequence's tail."""
        self.pool.filled[block] = seq.computed % self.block_size
        seq.account.hold(block, self.pool.filled[block])
        seq.account.release(dropped, self.pool.filled[dropped])
        self.pool.drop(dropped)

    def _fill(self, seq: Sequence, number: int, end: int) -> None:
        """Block `number` of `seq` holds its positions below `end`, and no others."""
        block = seq.table.blocks[number]
        filled = min(self.block_size, end - number * self.block_size)
        seq.account.grow(filled - self.pool.filled[block])
        self.pool.filled[block] = filled

    def _publish(self, seq: Sequence) -> None:
        """Publish full blocks; where an equal block is published already, adopt that one and free the own."""
        size, index = self.block_size, self.index
        for number in range(seq.published, seq.computed // size):
            own = seq.table.blocks[number]
            digest = self.block_hash(seq, number)
            before = seq.table.blocks[number - 1] if number else index.root(seq.namespace)
            tokens = tuple(seq.tokens[number * size : (number + 1) * size])
            equal = index.find(digest, before, tokens)
            if equal:
                self._replace(seq, number, own, equal)
            elif not index.publish(own, digest, before, tokens):
                return
            seq.published = number + 1

    def _replace(self, seq: Sequence, number: int, own: int, equal: int) -> None:
        self.pool.adopt(equal)
        seq.account.hold(equal, self.pool.filled[equal])
        seq.table.replace(number, equal)
        self._release(seq, (own,))

    def _release(self, seq: Sequence, blocks: tuple[int, ...], *, dead: bool = False) -> None:
        for block in blocks:
            seq.account.release(block, self.pool.filled[block])
        self.pool.drop_all(blocks, dead=dead)
        self._touched.add(seq.account)
