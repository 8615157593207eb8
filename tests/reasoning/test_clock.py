"""Logical time: who may be granted a token, after each thing that can happen."""

import anyio
from branchwise.reasoning.clock import LogicalClock, Ticket, TicketKind
from hypothesis import given
from hypothesis import strategies as st


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


OPERATIONS = st.sampled_from(
    ["begin", "grant", "commit", "refund", "suspend", "resume", "drop", "ask", "ask"]
)


@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 5)), max_size=40))
def test_the_last_token_is_the_earliest_waiting_branchs_after_anything_that_happened(
    happened: list[tuple[str, int]],
) -> None:
    """Against the definition, looked up among all tickets each time."""
    clock, tickets = LogicalClock(), dict[int, Ticket]()
    for operation, place in happened:
        ticket = tickets.get(place)
        if operation == "begin" and ticket is None:
            tickets[place] = clock.begin((place,), TicketKind.EXTEND)
        if ticket is None:
            continue
        match operation:
            case "grant" if not ticket.suspended:
                clock.granted(ticket)
            case "commit" if ticket.in_flight:
                clock.committed(ticket)
            case "refund" if ticket.in_flight:
                clock.refunded(ticket)
            case "suspend" if not ticket.in_flight:
                clock.suspend(ticket)
            case "resume" if ticket.suspended:
                clock.resume(ticket)
            case "drop":
                clock.drop(tickets.pop(place))
            case "ask" if not ticket.suspended:
                clock.settled = True
                running = [other for other in tickets.values() if not other.suspended]
                behind = any(other.committed_time < ticket.committed_time for other in running)
                first = any(other.key < ticket.key for other in running if not other.in_flight)
                assert clock.may_grant(ticket, scarce=True) == (not behind and not first)
