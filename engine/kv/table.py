"""The blocks of one sequence, in the order of their positions."""

from collections.abc import Iterable


class BlockTable:
    """An append-mostly list of blocks. `blocks` is the same tuple object while the table is unchanged, so
    that a runner can tell by identity that it has seen it. Reference counts are the pool's business; a table
    only remembers.
    """

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[int] = ()) -> None:
        self.blocks: tuple[int, ...] = tuple(blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def with_writes(self, copied: tuple[int, int] | None, fresh: tuple[int, ...]) -> tuple[int, ...]:
        """The tuple this table would be with (index, block) replaced and `fresh` appended; the table stays as
        it is.
        """
        if copied is None and not fresh:
            return self.blocks
        kept = self.blocks
        if copied is not None:
            index, block = copied
            kept = (*kept[:index], block, *kept[index + 1 :])
        return (*kept, *fresh)

    def assign(self, blocks: tuple[int, ...]) -> None:
        """Become `blocks`, keeping that very tuple."""
        self.blocks = blocks

    def replace(self, index: int, block: int) -> None:
        self.blocks = (*self.blocks[:index], block, *self.blocks[index + 1 :])

    def trim(self, count: int) -> tuple[int, ...]:
        """Keep the first `count` blocks; returns the others."""
        dropped = self.blocks[count:]
        if dropped:
            self.blocks = self.blocks[:count]
        return dropped
