"""A search as a stream: every event once and in order, text as it comes, and nothing left behind by a block
that is left early."""

import random
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.detokenize import Detokenizer
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import BranchOpened, Cut, Ended, Event, StepDone, Wrote
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.reasoning.stream import SolveStream
from branchwise.reasoning.told import LastingText
from branchwise.strategies.base import Search, Strategy
from branchwise.verifiers.problem import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from support.events import told_texts
from support.scripted import PLAIN, CharTokenizer, ScriptedEngine
from support.searching import DigitVerifier, Samples, outside_engine, scripted, solve, uneven

PROBLEM = Problem(text="task")
ENOUGH = Budget(tokens=10_000)


async def streamed(
    engine: ScriptedEngine, strategy: Strategy, *, reproducible: bool = True, **options: Any
) -> tuple[list[Event], Solution]:
    async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
        async with reasoner.stream(PROBLEM, strategy, ENOUGH, seed=0, **options) as stream:
            events = [event async for event in stream]
        return events, stream.solution


@pytest.mark.anyio
@pytest.mark.parametrize("reproducible", [True, False])
async def test_a_stream_gives_what_on_event_hears_and_the_solution_of_solve(reproducible: bool) -> None:
    heard: list[Event] = []
    events, solution = await streamed(
        scripted(pace=uneven), Samples(n=5), reproducible=reproducible, on_event=heard.append, deltas=True
    )
    assert events == heard
    assert isinstance(events[0], BranchOpened)
    assert isinstance(events[-1], Ended)
    assert sum(isinstance(event, Ended) for event in events) == 1
    assert [event.tokens_spent for event in events] == sorted(event.tokens_spent for event in events)
    if reproducible:
        async with Reasoner.over(scripted(pace=uneven)) as reasoner:
            plain = await reasoner.solve(PROBLEM, Samples(n=5), ENOUGH, seed=0)
        assert outside_engine(solution) == outside_engine(plain)


@pytest.mark.anyio
async def test_text_comes_before_its_step_ends_and_in_its_phase() -> None:
    events, solution = await streamed(scripted(), Samples(n=1), deltas=True)
    wrote = [event for event in events if isinstance(event, Wrote)]
    first_step = next(i for i, event in enumerate(events) if isinstance(event, StepDone))
    assert sum(isinstance(event, Wrote) for event in events[:first_step]) > 3
    phases = {
        phase: "".join(event.text for event in wrote if event.phase == phase)
        for phase in ("thinking", "answer")
    }
    assert phases["thinking"] == solution.thinking + "|"
    assert phases["answer"] == solution.conclusion + "$"
    assert solution.text == phases["thinking"] + phases["answer"]


@pytest.mark.anyio
async def test_no_text_comes_unasked() -> None:
    events, _ = await streamed(scripted(), Samples(n=3))
    assert not any(isinstance(event, Wrote | Cut) for event in events)


class Wanders(Strategy, tag="wanders", frozen=True):
    """Every verb that changes a branch's text, in an order of the seed; offers what it last did. Notes the
    text of each branch that it left standing."""

    order: int = 0

    async def run(self, search: Search) -> None:
        rng = random.Random(self.order)
        branch = search.root
        for _ in range(8):
            match rng.randrange(6):
                case 0:
                    await branch.extend(Until.STEP)
                case 1:
                    await branch.extend(Until.ANSWER, max_tokens=rng.randint(1, 12))
                case 2:
                    await branch.append("W" * rng.randint(0, 3))
                case 3:
                    await branch.extend(Until.END, stop=("a+", "==b"), max_tokens=20)
                case 4:
                    (branch,) = branch.fork(1)
                case 5:
                    born = len(branch.parent.tokens) if branch.parent is not None else 0
                    branch.truncate(rng.randint(born, len(branch.tokens)))
            search.note(f"{branch.id} stands", text=branch.text)
        await branch.conclude()
        search.note(f"{branch.id} stands", text=branch.text)
        search.offer(branch)


@settings(max_examples=60)
@given(order=st.integers(0, 10_000), reproducible=st.booleans())
def test_what_was_told_of_a_branch_is_its_text_whatever_was_done_to_it(
    order: int, reproducible: bool
) -> None:
    heard: list[Event] = []
    solution = solve(
        scripted(), Wanders(order=order), on_event=heard.append, deltas=True, reproducible=reproducible
    )
    assert solution.error is None
    standing = {note["note"].split()[0]: note["text"] for note in solution.graph.notes}
    assert told_texts(heard) == {"0": "", **standing}


@pytest.mark.anyio
async def test_a_stop_string_never_shows_not_even_in_part() -> None:
    class Stops(Strategy, tag="stops_at_a_string", frozen=True):
        async def run(self, search: Search) -> None:
            step = await search.root.extend(Until.END, stop=("STOP",))
            assert step.stop is Stop.STOP
            search.offer(search.root)

    engine = scripted(lambda prompt, seed: "abSTcSTOPd$", profile=PLAIN)
    events, solution = await streamed(engine, Stops(), deltas=True)
    assert [node.text for node in solution.graph.nodes() if node.kind == "step"] == ["abSTc"]
    assert told_texts(events) == {"0": "abSTc"}
    assert not any(isinstance(event, Cut) for event in events)


@given(
    text=st.text("ab", max_size=20),
    strings=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    size=st.integers(1, 5),
)
def test_what_lasts_stands_before_every_stop_string_and_only_what_could_begin_one_is_held(
    text: str, strings: list[str], size: int
) -> None:
    tokenizer = CharTokenizer()
    lasting = LastingText(Detokenizer(tokenizer), strings)
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    shown = "".join(lasting.push(tokenizer.encode(piece)) for piece in pieces)
    first = min((text.index(string) for string in strings if string in text), default=None)
    assert text[:first].startswith(shown)
    held = text[len(shown) :]
    assert not held or any(string.startswith(held) or held.startswith(string) for string in strings)


@pytest.mark.parametrize("reproducible", [True, False])
def test_leaving_a_stream_at_any_event_leaks_nothing(reproducible: bool) -> None:
    async def leave_after(count: int) -> bool:
        engine, read = scripted(pace=uneven), 0
        async with Reasoner.over(engine, reproducible=reproducible) as reasoner:
            async with reasoner.stream(PROBLEM, Samples(n=3), ENOUGH, seed=0, deltas=True) as stream:
                async for _ in stream:
                    read += 1
                    if read == count:
                        break
            assert engine.live_sequences == 0
            sampled = engine.tokens_sampled
            await anyio.lowlevel.checkpoint()
            assert engine.tokens_sampled == sampled, "it ran on"
        return read < count

    count = 1
    while not anyio.run(leave_after, count):
        count += 1
        assert count < 1000
    assert count > 50


@pytest.mark.anyio
@pytest.mark.parametrize("readers", [2, 3])
async def test_several_readers_share_the_events_and_all_of_them_end(readers: int) -> None:
    read: list[list[Event]] = [[] for _ in range(readers)]

    async def reader(mine: list[Event], stream: SolveStream) -> None:
        mine.extend([event async for event in stream])

    heard: list[Event] = []
    async with Reasoner.over(scripted(pace=uneven)) as reasoner:
        with anyio.fail_after(60):
            async with (
                reasoner.stream(PROBLEM, Samples(n=3), ENOUGH, seed=0, on_event=heard.append) as stream,
                anyio.create_task_group() as group,
            ):
                for mine in read:
                    group.start_soon(reader, mine, stream)
    assert sorted(map(repr, heard)) == sorted(repr(event) for mine in read for event in mine)


@pytest.mark.anyio
async def test_a_stream_that_was_left_early_says_so_to_whoever_still_reads() -> None:
    async with Reasoner.over(scripted()) as reasoner:
        async with reasoner.stream(PROBLEM, Samples(n=3), ENOUGH) as stream:
            await anext(stream)
        with anyio.fail_after(60), pytest.raises(UsageError, match="left before its search ended"):
            async for _ in stream:
                pass
        with pytest.raises(UsageError, match="left before its search ended"):
            _ = stream.solution


@pytest.mark.anyio
async def test_leaving_by_an_error_raises_that_error_alone() -> None:
    engine = scripted()
    async with Reasoner.over(engine) as reasoner:

        async def leave() -> None:
            async with reasoner.stream(PROBLEM, Samples(n=3), ENOUGH) as stream:
                await anext(stream)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await leave()
        assert engine.live_sequences == 0


@pytest.mark.anyio
async def test_what_the_search_raises_the_iteration_raises() -> None:
    async with Reasoner.over(scripted()) as reasoner:
        async with reasoner.stream(PROBLEM, "beam", ENOUGH) as stream:
            with pytest.raises(CapabilityError, match="needs a verifier"):
                async for _ in stream:
                    pass
        with pytest.raises(CapabilityError, match="needs a verifier"):
            _ = stream.solution


@pytest.mark.anyio
async def test_a_stopped_stream_ends_with_the_best_so_far() -> None:
    engine = scripted()
    async with Reasoner.over(engine) as reasoner:
        async with reasoner.stream(PROBLEM, Samples(n=30), ENOUGH, verifier=DigitVerifier("x")) as stream:
            with pytest.raises(UsageError, match="has not ended"):
                _ = stream.solution
            async for event in stream:
                if event.tokens_spent > 400:
                    stream.stop()
        assert stream.solution.reason is Reason.CANCELLED
        assert 0 < len(stream.solution.candidates) < 30
    assert engine.live_sequences == 0


@pytest.mark.anyio
async def test_a_deadline_ends_a_stream_with_its_solution() -> None:
    engine = scripted(lambda prompt, seed: "ab;" * 100_000, max_model_len=1_000_000, pace=lambda s, p: 200)
    async with (
        Reasoner.over(engine) as reasoner,
        reasoner.stream(PROBLEM, Samples(n=2), Budget(seconds=0.2), deltas=True) as stream,
    ):
        events = [event async for event in stream]
    assert stream.solution.reason is Reason.DEADLINE
    assert isinstance(events[-1], Ended)
    assert engine.live_sequences == 0
