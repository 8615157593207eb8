"""A conversation computes what is new in each turn, as long as its time to live lasts, and gives all back
when it is closed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from branchwise.engine.errors import CapacityError, UsageError
from branchwise.engine.text.tokenizer import Message
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.conversation import Conversation
from branchwise.reasoning.events import Ended, Event, Wrote
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Solution
from branchwise.verifiers.problem import Problem
from support.oracle_engine import OracleEngine
from support.scripted import CharTokenizer
from support.searching import Samples, scripted
from support.turns import TurnTokenizer, turn_info

BLOCK = 4
LONG = "a first question of a length that fills some blocks of the cache of this engine"
BUDGET = Budget(tokens=60)


class Rig:
    """A conversation's engine: small enough that what is not kept is evicted by a flood."""

    def __init__(self, num_blocks: int = 80, max_model_len: int = 4096) -> None:
        info = turn_info(max_model_len=max_model_len)
        self.oracle = OracleEngine(num_blocks=num_blocks, block_size=BLOCK, infos=(info,))
        self.floods = 0

    @asynccontextmanager
    async def reasoner(self) -> AsyncIterator[Reasoner]:
        async with self.oracle.engine as engine, Reasoner.over(engine, reproducible=False) as reasoner:
            yield reasoner
            await self.oracle.quiet()
            assert self.oracle.pool.owned == 0
            assert self.oracle.pool.pinned_cached == 0

    async def flood(self, reasoner: Reasoner) -> None:
        """Evict whatever is not kept."""
        for _ in range(9):
            self.floods += 1
            words = " ".join(f"{self.floods}x{place}" for place in range(45))
            await reasoner.solve(words, "greedy", Budget(tokens=1))


async def ask(conversation: Conversation, text: str) -> Solution:
    return await conversation.ask(text, Samples(n=1), BUDGET, seed=3, temperature=1.0)


def whole_blocks(positions: int) -> int:
    return positions // BLOCK * BLOCK


def prompt_length(system: str | None, messages: tuple[Message, ...], text: str) -> int:
    turns = [] if system is None else [Message("system", system)]
    return len(TurnTokenizer().chat([*turns, *messages, Message("user", text)]))


@pytest.mark.anyio
@pytest.mark.parametrize("flooded", [False, True])
async def test_a_second_turn_computes_its_new_rows_alone(flooded: bool) -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation(system="be brief") as conversation:
        first = await ask(conversation, LONG)
        assert conversation.messages == (
            Message("user", LONG),
            Message("assistant", first.conclusion),
        )
        common = prompt_length("be brief", conversation.messages, "") - 1
        assert conversation.kept_positions == whole_blocks(common)
        await rig.oracle.quiet()
        assert rig.oracle.pool.owned == 0, "kept in the cache, owned by nobody"
        if flooded:
            await rig.flood(reasoner)
        before = conversation.messages
        second = await ask(conversation, "and then")
        length = prompt_length("be brief", before, "and then")
        assert second.usage.engine["cached_tokens"] == whole_blocks(common)
        assert second.usage.engine["prefill_tokens"] == length - whole_blocks(common)
        assert second.usage.prompt_tokens == length
        third = await ask(conversation, "and last")
        assert third.usage.engine["cached_tokens"] >= whole_blocks(length)


@pytest.mark.anyio
async def test_after_its_time_to_live_the_kv_may_go_and_the_conversation_goes_on() -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation(ttl_s=0.05) as conversation:
        await ask(conversation, LONG)
        await rig.flood(reasoner)
        await anyio.sleep(0.06)
        await rig.flood(reasoner)
        assert rig.oracle.pool.pinned_cached == 0
        second = await ask(conversation, "and then")
        assert second.usage.engine["cached_tokens"] == 0
        assert len(conversation.messages) == 4


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["end", "error", "cancel"])
async def test_closing_gives_the_kv_back(way: str) -> None:
    rig, opened = Rig(), list[Conversation]()
    async with rig.reasoner() as reasoner:
        with anyio.CancelScope() as scope:
            try:
                async with reasoner.conversation() as conversation:
                    opened.append(conversation)
                    await ask(conversation, LONG)
                    await rig.oracle.quiet()
                    assert rig.oracle.pool.pinned_cached > 0
                    if way == "error":
                        raise KeyError
                    if way == "cancel":
                        scope.cancel()
                        await anyio.sleep_forever()
            except KeyError:
                pass
        await rig.oracle.quiet()
        assert rig.oracle.pool.pinned_cached == 0
        with pytest.raises(UsageError, match="was closed"):
            await ask(opened[0], "more")


@pytest.mark.anyio
async def test_a_conversation_is_of_its_namespace_alone() -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation(namespace="a") as conversation:

        async def cached(namespace: str) -> int:
            async with reasoner.conversation(namespace=namespace) as other:
                return (await ask(other, LONG)).usage.engine["cached_tokens"]

        await ask(conversation, LONG)
        assert await cached("b") == 0
        assert await cached("a") > 0


@pytest.mark.anyio
async def test_what_is_too_long_to_keep_is_solved_all_the_same() -> None:
    rig = Rig(num_blocks=44)
    async with rig.reasoner() as reasoner, reasoner.conversation() as conversation:
        first = await ask(conversation, " ".join(f"w{place}" for place in range(100)))
        assert first.conclusion
        assert conversation.kept_positions == 0
        assert (await ask(conversation, "and then")).conclusion


@pytest.mark.anyio
async def test_the_turn_that_fills_the_context_is_solved_and_the_next_one_is_refused() -> None:
    rig = Rig(max_model_len=60)
    async with rig.reasoner() as reasoner, reasoner.conversation() as conversation:
        first = await conversation.ask(
            " ".join(f"w{place}" for place in range(56)), Samples(n=1), BUDGET, seed=2
        )
        assert first.conclusion
        assert prompt_length(None, conversation.messages, "") >= 60
        assert conversation.kept_positions == 0
        with pytest.raises(CapacityError, match="the context of model"):
            await ask(conversation, "and then")
        assert len(conversation.messages) == 2


@pytest.mark.anyio
async def test_a_turn_that_is_cancelled_leaves_the_conversation_as_it_was() -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation() as conversation:
        await ask(conversation, LONG)
        before = conversation.messages
        with anyio.CancelScope() as scope:

            def cancel(event: Event) -> None:
                if isinstance(event, Wrote):
                    scope.cancel()

            await conversation.ask("never", Samples(n=8), BUDGET, on_event=cancel, deltas=True)
        assert scope.cancelled_caught
        assert conversation.messages == before
        async with anyio.create_task_group() as group:
            group.start_soon(ask, conversation, "one")
            await anyio.lowlevel.checkpoint()
            while not conversation.busy:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(UsageError, match="is being solved"):
                await ask(conversation, "other")
        assert [m.content for m in conversation.messages if m.role == "user"][-1] == "one"


@pytest.mark.anyio
async def test_a_conversation_that_is_closed_during_a_turn_keeps_nothing_of_it() -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation() as conversation:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, conversation, LONG)
            while not conversation.busy:
                await anyio.lowlevel.checkpoint()
            conversation.close()
        assert conversation.messages, "the turn came to its end"
        assert conversation.kept_positions == 0
        await rig.oracle.quiet()
        assert rig.oracle.pool.pinned_cached == 0


@pytest.mark.anyio
async def test_a_turn_is_a_stream_too() -> None:
    rig = Rig()
    async with rig.reasoner() as reasoner, reasoner.conversation() as conversation:
        async with conversation.stream(LONG, Samples(n=1), BUDGET, seed=3, deltas=True) as stream:
            events = [event async for event in stream]
        assert isinstance(events[-1], Ended)
        told = "".join(event.text for event in events if isinstance(event, Wrote))
        assert told == stream.solution.text
        assert conversation.messages[1].content == stream.solution.conclusion
        assert conversation.kept_positions


@pytest.mark.anyio
async def test_the_model_reads_the_earlier_turns_without_their_thinking() -> None:
    class Shows(CharTokenizer):
        def chat(self, messages, *, think=None):
            seen.append([(message.role, message.content) for message in messages])
            return super().chat(messages, think=think)

    seen: list[list[tuple[str, str]]] = []
    engine = scripted(lambda prompt, seed: "ab;|7$")
    engine.tokenizer = Shows()
    earlier = [Message("user", "x"), Message("assistant", "y")]
    async with (
        Reasoner.over(engine) as reasoner,
        reasoner.conversation(system="S", messages=earlier) as conversation,
    ):
        solution = await conversation.ask("task", Samples(n=1), Budget(tokens=100))
        assert (solution.thinking, solution.conclusion) == ("ab;", "7")
        assert conversation.kept_positions is None, "this engine keeps nothing on demand"
        await conversation.ask("more", Samples(n=1), Budget(tokens=100))
    begin = [("system", "S"), ("user", "x"), ("assistant", "y"), ("user", "task")]
    assert seen == [begin, [*begin, ("assistant", "7"), ("user", "more")]]
    assert engine.live_sequences == 0


@pytest.mark.anyio
async def test_a_turn_without_a_text_is_not_part_of_it() -> None:
    engine = scripted(lambda prompt, seed: "ab;" * 50)
    async with Reasoner.over(engine) as reasoner, reasoner.conversation() as conversation:
        solution = await conversation.ask("task", Samples(n=1), Budget(tokens=1, answer_reserve=0))
        assert solution.conclusion == ""
        assert conversation.messages == ()


@pytest.mark.anyio
async def test_a_problem_may_bring_its_earlier_turns() -> None:
    rig = Rig()
    turns = (Message("user", "x y"), Message("assistant", " 7"))
    async with rig.reasoner() as reasoner:
        solution = await reasoner.solve(Problem(text="more", messages=turns), "greedy", Budget(tokens=3))
        assert solution.usage.prompt_tokens == prompt_length(None, turns, "more")
        bad = (Message("assistant", "\udcff"),)
        with pytest.raises(UsageError, match=r"assistant message .* not UTF-8"):
            await reasoner.solve(Problem(text="more", messages=bad))
        with pytest.raises(UsageError, match="ttl_s=0"):
            reasoner.conversation(ttl_s=0)
