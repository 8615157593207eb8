"""Logical time: who may be granted a token, after each thing that can happen."""

import anyio
from branchwise.reasoning.clock import LogicalClock, Ticket, TicketKind


def _token(clock: LogicalClock, ticket: Ticket) -> None:
    clock.granted(ticket)
    clock.committed(ticket)


def test_a_delivered_end_no_longer_holds_the_others_back() -> None:
    """The delivery may wake nobody who calls the clock: it alone must open the next grants."""

    async def main() -> None:
        clock = LogicalClock()
        first, other = (clock.begin((index,), TicketKind.EXTEND) for index in range(2))
        for ticket in (first, other):
            _token(clock, ticket)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.finish, first)
            await anyio.wait_all_tasks_blocked()
            clock.settled = True
            assert not clock.may_grant(other, scarce=False)
            assert clock.deliver_next()
            clock.settled = True
            assert clock.may_grant(other, scarce=False)

    anyio.run(main)


def test_a_branch_ahead_waits_for_those_behind() -> None:
    clock = LogicalClock()
    ahead, behind = (clock.begin((index,), TicketKind.EXTEND) for index in range(2))
    _token(clock, ahead)
    clock.settled = True
    assert not clock.may_grant(ahead, scarce=False)
    assert clock.may_grant(behind, scarce=False)
    _token(clock, behind)
    assert clock.may_grant(ahead, scarce=False)
