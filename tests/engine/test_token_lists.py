"""Back ends that ask meters on the event loop: who is asked first, and what a cancellation leaves."""

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.protocol import Verdict, Work, WorkKind
from branchwise.engine.token_lists import ASK_AGAIN_S, TokenLists
from hypothesis import given, settings
from hypothesis import strategies as st

WORK = Work("policy", WorkKind.DECODE, 0, 1, (0,), tokens=1)


class Gate:
    """A meter that defers until it is opened, and then grants `left` times."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.open = False
        self.refunds = 0

    def grant(self, work: Work) -> Verdict:
        if not self.open:
            return Verdict.DEFER
        self.left -= 1
        return Verdict.GRANTED if self.left >= 0 else Verdict.REFUSED

    def commit(self, work: Work) -> None: ...

    def refund(self, work: Work) -> None:
        self.refunds += 1


@settings(max_examples=10, deadline=None)
@given(
    turns=st.lists(st.integers(0, 6), min_size=2, max_size=8),
    left=st.integers(0, 8),
    shuffle=st.randoms(use_true_random=False),
    notified=st.booleans(),
)
def test_the_last_grants_go_by_order_whenever_the_others_began_to_wait(turns, left, shuffle, notified):
    """Waiters that began at different times ask again at different times: that must not decide."""
    orders = [(0, i) for i in range(len(turns))]
    shuffle.shuffle(orders)
    gate, granted, awake = Gate(left), [], []

    async def wait(lists: TokenLists, order: tuple[int, ...], turn: int, all_ask: anyio.Event) -> None:
        await anyio.sleep(turn * ASK_AGAIN_S / 3)
        awake.append(order)
        if len(awake) == len(turns):
            all_ask.set()  # however late this machine wakes the last of them: it asks before others run
        if await lists._granted(gate, WORK, order):
            granted.append(order)

    async def main() -> None:
        lists: TokenLists = TokenLists()
        all_ask = anyio.Event()
        async with anyio.create_task_group() as group:
            for order, turn in zip(orders, turns, strict=True):
                group.start_soon(wait, lists, order, turn, all_ask)
            await all_ask.wait()
            gate.open = True
            if notified:
                lists.notify()

    anyio.run(main)
    assert sorted(granted) == sorted(orders)[:left]


@pytest.mark.parametrize("others", [0, 3])
def test_a_grant_that_its_cancelled_asker_never_saw_is_given_back(others: int):
    gate = Gate(10)

    async def main() -> None:
        lists: TokenLists = TokenLists()

        async def ask(order: tuple[int, ...]) -> None:
            await lists._granted(gate, WORK, order)

        async with anyio.create_task_group() as group:
            for i in range(others):
                group.start_soon(ask, (0, i))
            with anyio.CancelScope() as scope:
                group.start_soon(cancel_at_the_grant, lists, scope)
                await ask((1,))

    async def cancel_at_the_grant(lists: TokenLists, scope: anyio.CancelScope) -> None:
        await anyio.lowlevel.checkpoint()
        gate.open = True
        lists._ask_all()  # another one woke first and asked for all
        scope.cancel()

    anyio.run(main)
    assert (gate.refunds, gate.left) == (1, 10 - others - 1)


def test_it_serves_one_event_loop_after_the_other_whatever_the_first_left_waiting():
    lists: TokenLists = TokenLists()

    async def give_up(gate: Gate) -> None:
        with anyio.move_on_after(2 * ASK_AGAIN_S):
            await lists._granted(gate, WORK, ())

    async def open_later(gate: Gate) -> None:
        async def unlock() -> None:
            await anyio.sleep(2 * ASK_AGAIN_S)
            gate.open = True
            lists.notify()

        async with anyio.create_task_group() as group:
            group.start_soon(unlock)
            await lists._granted(gate, WORK, ())

    gate = Gate(1)
    anyio.run(give_up, Gate(1))
    anyio.run(open_later, gate)
    assert gate.left == 0
