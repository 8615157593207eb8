"""A sequence as the scheduler keeps it: its tokens, how far its KV stands, and whom it shares that with."""

from typing import TYPE_CHECKING

from ..kv.account import Account
from ..kv.prefix import BlockHash
from ..kv.table import BlockTable
from ..protocol import SeqId
from ..sampling.counts import TokenCounts
from .heads import PaidHeads

if TYPE_CHECKING:
    from .memory import ModelMemory
    from .request import Request


class Sequence:
    """Token ids whose KV stands in blocks up to `computed`, which chases `known`.

    Invariant: `len(table) == ceil(computed / block_size)`.

    *Trunk*: after a fork, the parent and its children are members of a hidden sequence that owns the table
    and the rows that were still to compute; they hold no blocks of their own. A member shares the trunk's
    first `base` positions and detaches, taking those blocks by reference, once it goes its own way. The chain
    of trunks above a sequence ends in the *holder*, which alone holds KV for all below it.

    What was paid, whatever the cache or a preemption did since: rows `< paid_rows` (below `base` a member's
    trunk knows), and the output heads that `heads` marks. KV never stands beyond what was paid.

    `weight` counts the visible sequences that hold KV through this one (1: itself).
    """

    __slots__ = (
        "account",
        "base",
        "born",
        "computed",
        "computed_once",
        "counts",
        "hashes",
        "heads",
        "hidden",
        "id",
        "last_used",
        "logits_kept",
        "members",
        "memory",
        "namespace",
        "paid_rows",
        "parked",
        "payer",
        "prompt_length",
        "published",
        "request",
        "resumed_at",
        "resumed_from",
        "seed",
        "table",
        "tenant",
        "tokens",
        "trunk",
        "weight",
    )

    def __init__(
        self,
        seq: SeqId,
        tokens: list[int],
        *,
        seed: int,
        memory: "ModelMemory",
        namespace: str,
        tenant: str,
        account: Account,
        hidden: bool = False,
    ) -> None:
        self.id = seq
        self.tokens = tokens
        self.prompt_length = len(tokens)
        """Tokens that its root was opened with, as far as they still stand."""
        self.counts: TokenCounts | None = None
        """None until a request that penalises what stands here."""
        self.seed = seed
        self.memory = memory
        self.namespace = namespace
        self.tenant = tenant
        """Whose share of each step its rows are counted in."""
        self.account = account
        self.hidden = hidden
        self.table = BlockTable()
        self.computed = 0
        self.computed_once = 0
        """Rows below this were computed at least once on this path: computing them again is recomputation."""
        self.hashes: list[BlockHash] = []
        self.published = 0
        """Leading blocks of the table that are in the prefix index."""
        self.paid_rows = 0
        self.heads = PaidHeads(len(tokens))
        self.trunk: Sequence | None = None
        self.base = 0
        self.born = len(tokens)
        """Positions that it was opened or forked with; those behind them are its own."""
        self.members: dict[SeqId, Sequence] = {}
        self.weight = 0 if hidden else 1
        self.request: Request | None = None
        self.payer: Request | None = None
        """The request whose meter reserved rows of this holder that are not computed yet."""
        self.logits_kept = False
        """The runner keeps the last row's logits under this (hidden) sequence."""
        self.parked = False
        self.last_used = 0
        self.resumed_at = -1
        self.resumed_from = 0

    @property
    def known(self) -> int:
        return len(self.tokens)

    @property
    def plain(self) -> bool:
        """A member that is still exactly its trunk: no tokens of its own, none cut."""
        trunk = self.trunk
        return trunk is not None and self.base == len(trunk.tokens) == len(self.tokens)

    @property
    def holder(self) -> "Sequence":
        """The end of the chain of trunks: the sequence whose table holds the KV of this one."""
        node = self
        while node.trunk is not None:
            node = node.trunk
        return node

    def count_tokens(self) -> TokenCounts:
        """The counts of all known tokens; from now on kept, and inherited by forks."""
        if self.counts is None:
            self.counts = TokenCounts()
        self.counts.follow(self.tokens, self.prompt_length)
        return self.counts

    def all_parked(self) -> bool:
        """Whether every visible sequence that holds KV through this one was parked and not used since."""
        if self.members:
            return all(member.all_parked() for member in self.members.values())
        return self.parked

    def shared_positions(self) -> int:
        """Leading positions of this sequence that stand in the holder's blocks' chain; all of them without a
        trunk.
        """
        reach, node = len(self.tokens), self
        while node.trunk is not None:
            reach = min(reach, node.base)
            node = node.trunk
        return reach

    def first_unpaid(self) -> int:
        """Rows below this were granted, by whichever member of the family."""
        if self.trunk is None:
            return self.paid_rows
        below = self.trunk.first_unpaid()
        return below if below < self.base else max(self.base, self.paid_rows)

    def pay(self, rows: int, heads: tuple[int, ...]) -> None:
        """A meter granted the rows up to `rows`, and the output heads at `heads`."""
        for position in heads:
            self.heads.mark(position, paid=True)
        node = self
        node.paid_rows = max(node.paid_rows, rows)
        while node.trunk is not None:
            rows = min(rows, node.base)
            node = node.trunk
            node.paid_rows = max(node.paid_rows, rows)

    def unpay(self, rows: int, heads: tuple[int, ...]) -> None:
        """What was granted from row `rows` on was not computed, nor were the output heads at `heads`."""
        for position in heads:
            self.heads.mark(position, paid=False)
        node = self
        node.paid_rows = min(node.paid_rows, rows)
        while node.trunk is not None and rows < node.base:
            node = node.trunk
            node.paid_rows = min(node.paid_rows, rows)
