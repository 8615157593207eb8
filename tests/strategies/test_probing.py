"""Early exit by probing: which answers agree, what counts as doubt, and what a probe costs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Event, Pruned
from branchwise.reasoning.solution import Solution
from branchwise.strategies.chain import Chain
from branchwise.strategies.probing import LEVELS, Effort, Probed, hesitates, settled
from support.scripted import PLAIN, THINKER, Script, ScriptedEngine
from support.searching import solve

BEFORE = len("Qtask:")
CONCLUDES = msgspec.structs.replace(THINKER, probe=None)


@pytest.mark.parametrize("text", ["7", "the denominator", "we know", "a threshold", "distribution", "nope"])
def test_words_that_hold_a_word_of_doubt_are_no_doubt(text: str) -> None:
    assert not hesitates(text)


@pytest.mark.parametrize("text", ["7} Wait, no", "hmm", "BUT then", "7. Okay", "hold on", "} no."])
def test_words_of_doubt_are_found_as_words(text: str) -> None:
    assert hesitates(text)


def probes(*keys: str | None, text: str = "") -> list[Probed]:
    return [Probed(text, key) for key in keys]


@pytest.mark.pins("hao-ai-lab/Dynasor#25")
@pytest.mark.parametrize(
    ("keys", "tau", "stops"),
    [
        (("1", "2", "3"), 3, False),
        ((None, None, None), 3, False),
        (("2", "2"), 3, False),
        (("2", "2", "2"), 3, True),
        (("1", "2", "2", "2"), 3, True),
        (("2", "2", "2", None), 3, False),
        (("2", "2", "3"), 2, False),
    ],
)
def test_only_equal_answers_that_are_there_settle(keys: Sequence[str | None], tau: int, stops: bool) -> None:
    assert settled(probes(*keys), tau) is stops


def test_one_doubting_probe_of_the_last_ones_unsettles() -> None:
    assert not settled([*probes("2", "2"), Probed("2} but", "2")], 3)
    assert settled([Probed("2} but", "2"), *probes("2", "2", "2")], 3)


def test_the_levels_are_the_papers() -> None:
    assert [LEVELS[level] for level in Effort] == [(8, 64), (5, 64), (3, 64), (2, 64), (2, 32)]
    assert Chain(effort=Effort.CRAZY).patience == (2, 32)
    assert Chain(effort=Effort.LOW, tau=4).patience == (4, 64)
    assert Chain(probe_every=9).patience == (3, 9)


def answers(*said: str, steps: int = 12) -> Script:
    """Thinks `steps` steps of five characters; asked behind step i it answers `said[i]`, then the last."""

    def script(text: str, seed: int) -> str:
        thought, end, answer = text[BEFORE:].partition("|")
        if not end:
            return "abcd;"[len(thought) % 5] if len(thought) < 5 * steps else "|"
        whole = said[min(len(thought) // 5, len(said)) - 1] + "$"
        return whole[len(answer) :]

    return script


def run(script: Script, strategy: Chain, profile: Any = CONCLUDES, **options: Any) -> Solution:
    engine = ScriptedEngine({"policy": script}, profile=profile)
    solution = solve(engine, strategy, **options)
    spent = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    assert solution.usage.tokens == solution.graph.tokens_spent == engine.tokens_sampled + spent
    assert engine.live_sequences == 0
    return solution


def probe_reasons(solution: Solution) -> list[str]:
    """Why the probes were pruned, in their order."""
    return [
        node.reason
        for node in solution.graph.nodes()
        if node.branch.startswith("0.") and node.kind == "forced"
    ]


def exits(solution: Solution) -> list[dict[str, Any]]:
    return [note for note in solution.graph.notes if note["note"] == "early exit"]


def test_thinking_ends_when_the_last_probes_agree() -> None:
    solution = run(answers("1", "2", "7", "7.0", "7", "8"), Chain(probe_every=5, tau=3))
    assert solution.text == "abcd;" * 5 + "|7$"
    assert probe_reasons(solution) == [f"probe: {key}" for key in ("1", "2", "7", "7", "7")]
    assert [(e["answer"], e["probes"], e["tau"]) for e in exits(solution)] == [("7", 5, 3)]
    # 25 of thinking, five probes (end, answer of 1 or 3, eos), the forced end, the answer and its end.
    assert solution.usage.tokens == 25 + 5 * 3 + 2 + 1 + 2


@pytest.mark.pins("hao-ai-lab/Dynasor#25")
@pytest.mark.parametrize(
    "said", [tuple("123412341234"), ("",) * 12, ("7 but", "7 no") * 6, ("7 hm 77777777777777777777",) * 12]
)
def test_it_thinks_on_where_answers_differ_are_empty_doubt_or_have_no_end(said: Sequence[str]) -> None:
    solution = run(answers(*said), Chain(probe_every=5, tau=3))
    assert exits(solution) == []
    assert [note["tokens"] for note in solution.graph.notes if note["note"] == "thinking"] == [60]
    assert len(probe_reasons(solution)) == 12


def test_probes_stand_behind_whole_steps_of_a_model_with_a_mark() -> None:
    solution = run(answers("7"), Chain(probe_every=7, tau=2))
    starts = [node.start for node in solution.graph.nodes() if node.branch.startswith("0.")]
    assert sorted({start for start in starts if (start - BEFORE) % 5 == 0}) == [BEFORE + 10, BEFORE + 20]
    assert solution.text == "abcd;" * 4 + "|7$"


def test_no_early_exit_below_the_least_thinking() -> None:
    solution = run(answers("7"), Chain(probe_every=5, tau=2, min_think=33))
    assert solution.text == "abcd;" * 7 + "|7$"


@pytest.mark.parametrize("tokens", [30, 45, 60, 75])
def test_probes_never_use_the_reserve(tokens: int) -> None:
    solution = run(
        answers(*"123456789"),
        Chain(probe_every=5, tau=3),
        budget=Budget(tokens=tokens, answer_reserve=4),
    )
    assert solution.candidates[0].complete
    assert solution.answer is not None
    assert solution.usage.tokens <= tokens


@pytest.mark.parametrize("profile", [THINKER, PLAIN])
def test_a_probe_text_leads_to_the_answer_inside_of_thinking(profile: Any) -> None:
    def script(text: str, seed: int) -> str:
        said = text[BEFORE:]
        if "boxed{" in said:
            return "\\frac{1}{2}} so"[len(said.rpartition("boxed{")[2]) :] or "$"
        if "|" in said:
            return "0.5$"[len(said.partition("|")[2]) :]
        return "abcd;"[len(said) % 5] if len(said) < 60 else ("|" if profile is THINKER else "$")

    solution = run(script, Chain(probe_every=5, tau=3, probe="so boxed{"), profile)
    assert probe_reasons(solution) == ["probe: 1/2"] * 3
    assert solution.text.startswith("abcd;" * 3 + ("|" if profile is THINKER else "\n\nFinal"))


def test_a_box_without_end_is_no_answer() -> None:
    def script(text: str, seed: int) -> str:
        said = text[BEFORE:]
        if "boxed{" in said:
            return "12"
        if "|" in said:
            return "3$"[len(said.partition("|")[2]) :]
        return "abcd;"[len(said) % 5] if len(said) < 30 else "|"

    solution = run(script, Chain(probe_every=10, tau=2, probe="boxed{"), THINKER)
    assert set(probe_reasons(solution)) == {"probe: no answer"}
    assert exits(solution) == []


def test_a_probe_whose_text_is_not_covered_is_none() -> None:
    """Without its text, what the chain thinks next would be read as its answer."""
    thinking = ScriptedEngine({"policy": lambda text, seed: "1};"[len(text[BEFORE:]) % 3 :]})
    strategy = Chain(probe_every=3, tau=2, probe="so the answer is, without more ado, boxed{")
    events: list[Event] = []
    solution = solve(thinking, strategy, Budget(kv_tokens=BEFORE + 40), on_event=events.append)
    assert exits(solution) == []
    probed = {event.reason for event in events if isinstance(event, Pruned) and event.branch != "0"}
    assert probed == {"probe: not covered"}
