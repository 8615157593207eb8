"""The checker finds what it is there to find."""

from collections.abc import Callable

import pytest
from branchwise.engine.kv.check import InvariantError
from branchwise.engine.sched.sequence import Sequence
from support.checks import Rig, extend_params


def corrupt_refs(rig: Rig, seq: Sequence) -> None:
    rig.pool._refs[seq.table.blocks[0]] += 1


def lose_a_block(rig: Rig, seq: Sequence) -> None:
    rig.pool._free.pop()


def overcount_the_account(rig: Rig, seq: Sequence) -> None:
    seq.account.held += 1


def overcount_unshared(rig: Rig, seq: Sequence) -> None:
    seq.account.unshared -= 1


def shorten_the_table(rig: Rig, seq: Sequence) -> None:
    seq.computed -= rig.pool.block_size


def empty_a_block(rig: Rig, seq: Sequence) -> None:
    rig.pool.filled[seq.table.blocks[0]] = 1


def swap_published_tokens(rig: Rig, seq: Sequence) -> None:
    seq.tokens[0] += 1


def miscount_children(rig: Rig, seq: Sequence) -> None:
    rig.pool._children[seq.table.blocks[0]] += 1


@pytest.mark.parametrize(
    "damage",
    [
        corrupt_refs,
        lose_a_block,
        overcount_the_account,
        overcount_unshared,
        shorten_the_table,
        empty_a_block,
        swap_published_tokens,
        miscount_children,
    ],
)
def test_damage_is_found(damage: Callable[[Rig, Sequence], None]) -> None:
    rig = Rig(block_size=4)
    seq = rig.open(list(range(1, 12)))
    rig.run(rig.extend(seq, extend_params(3)))
    rig.scheduler.check()
    damage(rig, rig.scheduler.family.sequences[seq])
    with pytest.raises(InvariantError):
        rig.scheduler.check()
