"""Who may run and who waits: order, caps, refusals, and nobody lost by cancellation."""

from collections.abc import Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.serve.errors import ApiError
from branchwise.serve.keys import Caller, Quota
from branchwise.serve.line import Line
from branchwise.serve.settings import Limits

pytestmark = pytest.mark.anyio


def caller(name: str = "a", **quota: int) -> Caller:
    return Caller(name=name, namespace=name, quota=Quota(**quota))


class Visitor:
    """A task that takes a turn and holds it until `done` is set."""

    def __init__(self, line: Line, who: Caller, log: list[str] | None = None, label: str = "") -> None:
        self.line, self.who, self.log, self.label = line, who, log, label
        self.done = anyio.Event()
        self.scope = anyio.CancelScope()
        self.inside = False
        self.refused = False

    async def __call__(self) -> None:
        with self.scope:
            try:
                async with self.line.turn(self.who):
                    self.inside = True
                    if self.log is not None:
                        self.log.append(self.label)
                    await self.done.wait()
            except ApiError as error:
                self.refused = error.status == 429
            finally:
                self.inside = False


async def settle() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_more_than_may_run_wait_in_the_order_they_came() -> None:
    line, log = Line(Limits(running=1, waiting=4)), []
    visitors = [Visitor(line, caller(), log, str(i)) for i in range(3)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor)
            await settle()
        assert (line.running, line.waiting) == (1, 2)
        for visitor in visitors:
            visitor.done.set()
            await settle()
    assert log == ["0", "1", "2"]
    assert (line.running, line.waiting) == (0, 0)


async def test_a_key_at_its_cap_holds_no_other_key_up() -> None:
    line = Line(Limits(running=2, waiting=5))
    first, second, other = (
        Visitor(line, caller("a", running=1)),
        Visitor(line, caller("a", running=1)),
        Visitor(line, caller("b")),
    )
    async with anyio.create_task_group() as group:
        for visitor in (first, second, other):
            group.start_soon(visitor)
            await settle()
        assert (first.inside, second.inside, other.inside) == (True, False, True)
        for visitor in (first, second, other):
            visitor.done.set()


async def test_a_full_line_refuses_and_says_when_to_come_back() -> None:
    line = Line(Limits(running=1, waiting=1))
    visitors = [Visitor(line, caller()) for _ in range(2)]
    async with anyio.create_task_group() as group:
        for visitor in visitors:
            group.start_soon(visitor)
            await settle()
        with pytest.raises(ApiError) as caught:
            async with line.turn(caller("b")):
                pass
        assert caught.value.status == 429
        assert int(caught.value.headers["Retry-After"]) >= 1
        assert line.refused == 1
        for visitor in visitors:
            visitor.done.set()


async def test_a_key_fills_its_part_of_the_line_only() -> None:
    line = Line(Limits(running=1, waiting=10))
    visitors = [Visitor(line, caller("a", waiting=1)) for _ in range(3)]
    other = Visitor(line, caller("b"))
    async with anyio.create_task_group() as group:
        for visitor in (*visitors, other):
            group.start_soon(visitor)
            await settle()
        assert [visitor.refused for visitor in visitors] == [False, False, True]
        assert not other.refused
        for visitor in (*visitors, other):
            visitor.done.set()


@given(steps=st.lists(st.tuples(st.sampled_from(["come", "done", "cancel"]), st.integers(0, 9)), max_size=40))
def test_no_order_of_coming_ending_and_cancelling_loses_a_place(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        line = Line(Limits(running=2, waiting=3))
        visitors: list[Visitor] = []
        async with anyio.create_task_group() as group:
            for verb, number in steps:
                act(verb, number, line, visitors, group.start_soon)
                await settle()
                inside = sum(visitor.inside for visitor in visitors)
                assert line.running == inside <= 2
                assert not line.waiting or inside == 2
            group.cancel_scope.cancel()
        assert (line.running, line.waiting) == (0, 0)

    anyio.run(run)


def act(
    verb: str, number: int, line: Line, visitors: list[Visitor], start: Callable[[Visitor], object]
) -> None:
    if verb == "come":
        visitors.append(Visitor(line, caller(str(number % 2))))
        start(visitors[-1])
    elif visitors:
        visitor = visitors[number % len(visitors)]
        visitor.done.set() if verb == "done" else visitor.scope.cancel()
