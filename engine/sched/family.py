"""The family tree of sequences: fork, detach, append, truncate and release, none of which computes a row."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from itertools import count

from ..protocol import EngineUsage, SeqId
from .memory import ModelMemory
from .sequence import Sequence


class Family:
    """All live sequences of the engine, and how they share KV (see `Sequence` for the trunk).

    `on_forget` is called with a hidden sequence whose logits the runner may still keep.
    """

    def __init__(self, on_forget: Callable[[Sequence], None]) -> None:
        self.sequences: dict[SeqId, Sequence] = {}
        self._on_forget = on_forget
        self._hidden_ids = count(-1, -1)

    def open(
        self,
        seq: SeqId,
        tokens: list[int],
        seed: int,
        memory: ModelMemory,
        namespace: str,
        tenant: str,
        usage: EngineUsage,
    ) -> None:
        account = memory.join_account(usage)
        self.sequences[seq] = Sequence(
            seq, tokens, seed=seed, memory=memory, namespace=namespace, tenant=tenant, account=account
        )

    def mirror(self, seq: Sequence, memory: ModelMemory) -> Sequence:
        """A sequence of the engine's own with the same tokens, seed and account, on another model."""
        account = memory.join_account(seq.account.usage)
        mirror = Sequence(
            SeqId(next(self._hidden_ids)),
            seq.tokens.copy(),
            seed=seq.seed,
            memory=memory,
            namespace=seq.namespace,
            tenant=seq.tenant,
            account=account,
        )
        mirror.prompt_length = seq.prompt_length
        self.sequences[mirror.id] = mirror
        return mirror

    def fork(self, seq: Sequence, children: Seq[tuple[SeqId, int]]) -> None:
        """Add (id, seed) children that share all KV of `seq`, and the rows that are still to compute."""
        trunk = seq.trunk if seq.trunk is not None and seq.plain else self._make_trunk(seq)
        for child_id, seed in children:
            child = self._sibling(seq, child_id, seed=seed)
            child.computed_once = seq.computed_once
            child.heads = seq.heads.fork()
            child.counts = None if seq.counts is None else seq.counts.fork()
            self._join(child, trunk)

    def append(self, seq: Sequence, tokens: Seq[int]) -> None:
        """Forced tokens; their rows stay to be computed."""
        seq.tokens.extend(tokens)
        seq.heads.extend(len(tokens))
        self.detach_if_ready(seq)

    def truncate(self, seq: Sequence, position: int) -> None:
        """Keep the tokens before `position`."""
        if position >= seq.known:
            return
        if seq.counts is not None:
            seq.counts.truncate(seq.tokens, seq.prompt_length, position)
        seq.prompt_length = min(seq.prompt_length, position)
        del seq.tokens[position:]
        seq.heads.truncate(position)
        del seq.hashes[position // seq.memory.block_size :]
        seq.paid_rows = min(seq.paid_rows, position)
        seq.computed_once = min(seq.computed_once, position)
        seq.resumed_from = min(seq.resumed_from, position)
        seq.base = min(seq.base, position)
        seq.memory.cut(seq, position)
        self.detach_if_ready(seq)

    def release(self, seq: Sequence, *, dead: bool = False) -> None:
        """End the sequence; a trunk ends with its last member. Of a dead one nobody will want the tail."""
        if seq.trunk is not None:
            self._leave(seq)
        self._end(seq, dead=dead)

    def detach_if_ready(self, seq: Sequence) -> None:
        """A member that went its own way takes what it shares, once the holder has computed that."""
        if seq.trunk is not None and not seq.plain and seq.holder.computed >= seq.shared_positions():
            self.detach(seq)

    def detach_ready_members(self, trunk: Sequence) -> None:
        """The holder's KV grew: let go of the members that waited for it, at any depth."""
        for member in tuple(trunk.members.values()):
            self.detach_if_ready(member)
            if member.members:
                self.detach_ready_members(member)

    def detach(self, seq: Sequence) -> None:
        """Take the holder's blocks by reference, its partial tail too, and what was paid; then go alone."""
        holder, positions = seq.holder, seq.shared_positions()
        seq.paid_rows = seq.first_unpaid()
        seq.computed_once = max(seq.computed_once, min(holder.computed_once, positions))
        node = seq.trunk
        while node is not None:
            if node.payer is not None and node.payer is seq.payer:
                node.payer = None
            node = node.trunk
        holder.memory.share(holder, seq, positions)
        seq.resumed_at = max(seq.resumed_at, holder.resumed_at)
        seq.resumed_from = max(seq.resumed_from, holder.resumed_from)
        seq.last_used = holder.last_used
        self._leave(seq)

    def _make_trunk(self, seq: Sequence) -> Sequence:
        """A hidden sequence takes over the table and the open rows of `seq`, which becomes its first
        member.
        """
        trunk = self._sibling(seq, SeqId(next(self._hidden_ids)), seed=0, hidden=True)
        trunk.paid_rows = seq.paid_rows
        trunk.computed_once = seq.computed_once
        trunk.last_used = seq.last_used
        trunk.resumed_at, trunk.resumed_from = seq.resumed_at, seq.resumed_from
        outer = seq.trunk
        if outer is not None:
            base = seq.base
            self._leave(seq, keep=True)
            self._join(trunk, outer, base)
        else:
            seq.memory.hand_over(seq, trunk)
        self._join(seq, trunk)
        return trunk

    def _sibling(self, seq: Sequence, new_id: SeqId, *, seed: int, hidden: bool = False) -> Sequence:
        """A sequence with the same tokens, model, namespace and account; it holds nothing yet."""
        sibling = Sequence(
            new_id,
            seq.tokens.copy(),
            seed=seed,
            memory=seq.memory,
            namespace=seq.namespace,
            tenant=seq.tenant,
            account=seq.memory.join_account(seq.account.usage),
            hidden=hidden,
        )
        sibling.prompt_length = seq.prompt_length
        sibling.hashes = seq.hashes.copy()
        self.sequences[new_id] = sibling
        return sibling

    def _join(self, seq: Sequence, trunk: Sequence, base: int | None = None) -> None:
        seq.trunk = trunk
        seq.base = trunk.known if base is None else base
        trunk.members[seq.id] = seq
        trunk.memory.add_weight(trunk, seq.weight)

    def _leave(self, seq: Sequence, *, keep: bool = False) -> None:
        """Stop being a member; a trunk without members ends, unless the caller goes on to use it."""
        trunk = seq.trunk
        assert trunk is not None
        del trunk.members[seq.id]
        trunk.memory.add_weight(trunk, -seq.weight)
        seq.trunk, seq.base = None, 0
        if trunk.members or keep:
            return
        if trunk.trunk is not None:
            self._leave(trunk)
        self._end(trunk)

    def _end(self, seq: Sequence, *, dead: bool = False) -> None:
        seq.memory.drop_blocks(seq, dead=dead)
        if seq.logits_kept:
            self._on_forget(seq)
        seq.memory.leave_account(seq.account)
        del self.sequences[seq.id]
