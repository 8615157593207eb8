"""Budget forcing: the end of thinking is taken back, "wait" is forced, thinking is capped, an answer
follows."""

from typing import Any

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.solution import Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.strategies.chain import Chain
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scripted import PLAIN, THINKER, ScriptedEngine
from support.searching import solve

BEFORE = len("Qtask:")


def thinker(text: str, seed: int) -> str:
    """Thinks in steps of `ab;`, two of them before each end of thinking, and answers the number of its
    waits."""
    thought, end, said = text[BEFORE:].partition("|")
    if end:
        return f"{thought.count('W')}$"[len(said.lstrip()) :] or "$"
    since_wait = thought.rpartition("W")[2]
    return "ab;ab;|"[len(since_wait)]


def engine(script: Any = thinker, **options: Any) -> ScriptedEngine:
    return ScriptedEngine({"policy": script}, **options)


def figures(solution: Solution) -> dict[str, Any]:
    """The one note on how long it thought."""
    (found,) = [note for note in solution.graph.notes if note["note"] == "thinking"]
    return found


def forced(solution: Solution) -> int:
    """Tokens of forced nodes."""
    return sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")


@pytest.mark.parametrize("waits", [0, 1, 3])
def test_wait_takes_the_place_of_the_end_of_thinking(waits: int) -> None:
    run = engine()
    solution = solve(run, Chain(waits=waits))
    assert solution.answer == str(waits)
    assert solution.text == "W".join(["ab;ab;"] * (waits + 1)) + f"|{waits}$"
    # 7 tokens a round with its end, the forced waits, the answer and its end; what was dropped stays paid.
    assert solution.usage.tokens == 7 * (waits + 1) + waits + 2
    assert solution.usage.discarded_tokens == waits
    assert run.tokens_sampled == solution.usage.tokens - waits
    told = figures(solution)
    assert (told["waits"], told["tokens"], told["cut"], told["within"]) == (waits, 7 * waits + 6, False, None)
    dropped = [node for node in solution.graph.nodes() if node.reason == "truncated"]
    assert [node.stop for node in dropped] == ["think_end"] * waits


def test_it_waits_once_unless_a_parameter_says_how_long_to_think() -> None:
    assert [
        Chain().ignored_ends,
        Chain(waits=4).ignored_ends,
        Chain(min_think=9).ignored_ends,
        Chain(max_think=9).ignored_ends,
        Chain(probe_every=9).ignored_ends,
        Chain(no_think=True).ignored_ends,
        Chain(max_think=9, waits=2).ignored_ends,
    ] == [1, 4, 0, 0, 0, 0, 2]


@pytest.mark.parametrize(("min_think", "waits"), [(1, 0), (6, 0), (7, 1), (13, 1), (14, 2), (30, 4)])
def test_thinking_that_ends_too_early_goes_on(min_think: int, waits: int) -> None:
    solution = solve(engine(), Chain(min_think=min_think))
    told = figures(solution)
    assert told["waits"] == waits == int(solution.answer or -1)
    assert told["tokens"] == len(solution.text.partition("|")[0]) >= min_think
    assert (told["at_least"], told["within"]) == (min_think, True)


@pytest.mark.pins("simplescaling/s1#53")
@pytest.mark.parametrize("max_think", [1, 6, 7, 8, 11, 14, 15])
def test_forced_thinking_stays_in_its_cap_and_the_answer_runs_after_it(max_think: int) -> None:
    solution = solve(engine(), Chain(waits=2, max_think=max_think))
    thinking = solution.text.partition("|")[0]
    assert len(thinking) <= figures(solution)["tokens"] <= max_think
    assert solution.answer == str(thinking.count("W"))
    assert solution.candidates[0].complete


@pytest.mark.parametrize("max_think", range(1, 7))
def test_no_wait_is_forced_where_a_limit_cut_the_thinking(max_think: int) -> None:
    solution = solve(engine(), Chain(waits=5, max_think=max_think))
    told = figures(solution)
    assert (told["cut"], told["waits"], told["tokens"], told["within"]) == (True, 0, max_think, True)
    assert "W" not in solution.text
    assert solution.answer == "0"


@pytest.mark.parametrize("max_tokens", [5, 9, 12])
def test_no_wait_is_forced_where_the_runs_longest_candidate_cut_the_thinking(max_tokens: int) -> None:
    solution = solve(
        engine(lambda text, seed: "a" if "|" not in text else "7$"), Chain(), max_tokens=max_tokens
    )
    assert (figures(solution)["cut"], figures(solution)["waits"]) == (True, 0)
    assert "W" not in solution.text


@pytest.mark.pins("simplescaling/s1#127")
@pytest.mark.parametrize("tokens", [4, 8, 9, 10, 17, 30])
def test_a_budget_that_ends_thinking_leaves_the_reserve_for_the_answer(tokens: int) -> None:
    solution = solve(engine(), Chain(waits=5), Budget(tokens=tokens, answer_reserve=3))
    assert solution.answer is not None
    assert solution.candidates[0].complete
    assert solution.usage.tokens <= tokens


@settings(max_examples=60, deadline=None)
@given(
    waits=st.integers(0, 4),
    low=st.none() | st.integers(1, 20),
    more=st.none() | st.integers(0, 25),
    tokens=st.integers(4, 90),
    every=st.none() | st.integers(1, 9),
)
def test_thinking_stays_in_its_cap_and_all_is_paid_within_any_budget(
    waits: int, low: int | None, more: int | None, tokens: int, every: int | None
) -> None:
    cap = None if more is None else (low or 1) + more
    run = engine(profile=msgspec.structs.replace(THINKER, probe=None))
    solution = solve(
        run,
        Chain(waits=waits, min_think=low, max_think=cap, probe_every=every),
        Budget(tokens=tokens, answer_reserve=3),
    )
    thinking = solution.text.partition("|")[0]
    assert cap is None or len(thinking) <= figures(solution)["tokens"] <= cap
    assert thinking.count("W") == figures(solution)["waits"] or figures(solution)["cut"]
    assert solution.answer is not None
    assert solution.candidates[0].complete
    assert solution.usage.tokens <= tokens
    assert solution.usage.tokens == solution.graph.tokens_spent == run.tokens_sampled + forced(solution)
    assert run.live_sequences == 0


def test_a_sequence_that_ends_in_the_middle_of_thinking_is_reopened_and_answers() -> None:
    def quitter(text: str, seed: int) -> str:
        thought, end, said = text[BEFORE:].partition("|")
        if end:
            return "5$"[len(said) :]
        return "ab;$"[len(thought.rpartition("W")[2])]

    solution = solve(engine(quitter), Chain(waits=2))
    assert solution.text == "ab;Wab;Wab;|5$"
    assert solution.answer == "5"


@pytest.mark.pins("TensorRT-LLM#3576", "ollama#17566")
@pytest.mark.parametrize("room", [20, 33, 60])
def test_thinking_without_end_leaves_room_for_the_answer_in_the_context(room: int) -> None:
    def looping(text: str, seed: int) -> str:
        return "7$"[len(text.partition("|")[2]) :] if "|" in text else "ab;"[(len(text) - BEFORE) % 3]

    solution = solve(engine(looping, max_model_len=BEFORE + room), Chain(waits=3))
    assert figures(solution)["cut"]
    assert solution.answer == "7"
    assert solution.candidates[0].complete


class TestWithoutAThinkingPhase:
    """The model thinks in its answer, which the end of the sequence ends."""

    @staticmethod
    def plain(text: str, seed: int) -> str:
        """One step and the number of its waits, each time; a box where it is asked for one."""
        said = text[BEFORE:]
        if "boxed{" in said:
            return "9}$"[len(said.rpartition("boxed{")[2]) :] or "$"
        return f"ab;{said.count('W')}$"[len(said.rpartition("W")[2])]

    @pytest.mark.parametrize("waits", [0, 1, 3])
    def test_the_end_of_the_sequence_is_taken_back(self, waits: int) -> None:
        solution = solve(engine(self.plain, profile=PLAIN), Chain(waits=waits, wait="W"))
        assert solution.text == "W".join(f"ab;{index}" for index in range(waits + 1)) + "$"
        assert solution.answer == str(waits)
        assert figures(solution)["tokens"] == 5 * waits + 4

    def test_a_cut_chain_is_asked_for_its_answer(self) -> None:
        solution = solve(engine(self.plain, profile=PLAIN), Chain(max_think=3))
        assert solution.text == "ab;\n\nFinal Answer: \\boxed{9}$"
        assert solution.answer == "9"
        assert figures(solution)["cut"]

    def test_part_of_the_budget_is_kept_for_the_answer(self) -> None:
        def looping(text: str, seed: int) -> str:
            return self.plain(text, seed) if "boxed{" in text else "a"

        solution = solve(
            engine(looping, profile=PLAIN), Chain(max_think=200, final="boxed{"), Budget(tokens=80)
        )
        assert solution.text.endswith("aboxed{9}$")
        assert solution.usage.tokens == 70 + len("boxed{9}$")

    def test_it_is_refused_what_it_cannot_do_before_it_writes(self) -> None:
        bare = engine(self.plain, profile=msgspec.structs.replace(PLAIN, probe=None))
        for strategy, words in (
            (Chain(no_think=True), "no_think=true needs a model that is to think"),
            (Chain(probe_every=8), "give the text that leads to its answer"),
        ):
            with pytest.raises(UsageError, match=words):
                solve(bare, strategy)
        assert bare.tokens_sampled == 0


def test_no_think_writes_a_thought_that_is_over_at_once() -> None:
    profile = msgspec.structs.replace(THINKER, think_start="<")
    solution = solve(engine(profile=profile), Chain(no_think=True))
    assert solution.text == "<\nOkay, I think I have finished thinking.\n|\n\n0$"
    assert solution.answer == "0"
    assert solution.usage.tokens == len(solution.text)


def test_no_think_of_a_model_without_such_a_thought_ends_thinking_at_once() -> None:
    solution = solve(engine(profile=msgspec.structs.replace(THINKER, no_think="")), Chain(no_think=True))
    assert solution.text == "|0$"


def test_no_think_does_not_open_a_block_that_the_prompt_opened() -> None:
    profile = msgspec.structs.replace(THINKER, think_start=":")
    solution = solve(engine(profile=profile), Chain(no_think=True))
    assert solution.text.startswith("Okay")


def test_wait_and_its_count_come_from_the_parameters() -> None:
    def counting(text: str, seed: int) -> str:
        thought, end, said = text[BEFORE:].partition("|")
        if end:
            return f"{thought.count('Hm')}$"[len(said) :] or "$"
        return "ab;|"[len(thought.rpartition("Hm")[2])]

    assert solve(engine(counting), Chain(waits=2, wait="Hm")).text == "ab;Hmab;Hmab;|2$"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"min_think": 9, "max_think": 8}, "min_think=9 is above max_think=8"),
        ({"no_think": True, "waits": 1}, "leave out min_think, max_think, waits"),
        ({"no_think": True, "effort": "mid"}, "leave out min_think"),
        ({"wait": ""}, "wait"),
        ({"waits": -1}, "0 to 1024"),
        ({"tau": 1}, "2 to 64"),
    ],
)
def test_wrong_parameters_are_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Chain(**fields)
    assert "\n" not in str(caught.value)


class Chains(Strategy, tag="chains", kw_only=True, frozen=True):
    """Three chains side by side, nested as other strategies nest them."""

    async def run(self, search: Search) -> None:
        async def one(branch: Branch) -> None:
            inner = Chain(waits=2)
            async with search.scope(branch, inner) as inside:
                await inner.run(inside)

        async with search.each(search.root.fork(3), one) as done:
            async for _ in done:
                continue


def test_chains_nest_and_one_that_fails_leaves_the_others() -> None:
    solution = solve(engine(), Chains())
    assert [candidate.answer for candidate in solution.candidates] == ["2"] * 3
    assert [note["branch"] for note in solution.graph.notes] == ["0.0", "0.1", "0.2"]
    failing = engine(fail_at=20)
    assert len(solve(failing, Chains()).candidates) == 2
    assert failing.live_sequences == 0
