"""Where a branch thinks, as prompt and text show it; what its context takes; offers that later ones
replace."""

from typing import Any

import msgspec
import pytest
from branchwise.engine.text.stop import Until
from branchwise.engine.text.tokenizer import Message
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.vote import Select
from support import scripted as scripting
from support.scripted import PLAIN, THINKER, ScriptedEngine
from support.searching import solve

SEEN: list[Any] = []


class Looks(Strategy, tag="looks", kw_only=True, frozen=True):
    """Records what a branch tells of itself at each of its stages."""

    async def run(self, search: Search) -> None:
        branch = search.root
        SEEN.append((branch.thinking, branch.thinking_begun, branch.conclusion, branch.room))
        await branch.append("<a;")
        SEEN.append((branch.thinking, branch.thinking_begun, branch.conclusion, branch.room))
        await branch.extend(Until.ANSWER)
        SEEN.append((branch.thinking, branch.thinking_begun, branch.conclusion, branch.room))


def looks(engine: ScriptedEngine) -> list[Any]:
    SEEN.clear()
    solve(engine, Looks())
    return list(SEEN)


def writes(text: str, seed: int) -> str:
    return "|5$"[len(text.partition("<a;")[2]) :]


def test_a_branch_tells_of_its_thinking_and_its_room() -> None:
    profile = msgspec.structs.replace(THINKER, think_start="<")
    engine = ScriptedEngine({"policy": writes}, profile=profile, max_model_len=20)
    assert looks(engine) == [(True, False, "", 14), (True, True, "", 11), (False, True, "5", 8)]


def test_a_model_without_a_thinking_phase_concludes_all_along() -> None:
    engine = ScriptedEngine({"policy": writes}, profile=PLAIN, max_model_len=20)
    assert [(seen[0], seen[1], seen[2]) for seen in looks(engine)] == [
        (False, True, ""),
        (False, True, "<a;"),
        (False, True, "<a;|5"),
    ]


@pytest.mark.parametrize(
    ("opening", "thinks", "begun"), [("<", True, True), ("<|", False, False), ("|x", True, False)]
)
def test_a_prompt_may_open_thinking_or_close_it_at_once(
    monkeypatch: pytest.MonkeyPatch, opening: str, thinks: bool, begun: bool
) -> None:
    def chat(self: Any, messages: list[Message], *, think: bool | None = None) -> list[int]:
        return self.encode(f"Q{messages[-1].content}:{opening}")

    monkeypatch.setattr(scripting.CharTokenizer, "chat", chat)
    profile = msgspec.structs.replace(THINKER, think_start="<")
    first = looks(ScriptedEngine({"policy": writes}, profile=profile))[0]
    assert first[:2] == (thinks, begun)


def test_a_whole_last_step_is_kept_where_thinking_is_cut_right_behind_it() -> None:
    def endless(text: str, seed: int) -> str:
        return "5$"[len(text.partition("|")[2]) :] if "|" in text else "ab;"[(len(text) - 6) % 3]

    for tokens, kept in ((9, "ab;ab;ab;"), (10, "ab;ab;ab;"), (8, "ab;ab;")):
        solution = solve(ScriptedEngine({"policy": endless}), Cuts(tokens=tokens))
        assert solution.text == f"{kept}|5$"


class Cuts(Strategy, tag="cuts", kw_only=True, frozen=True):
    """Thinks a number of tokens and concludes."""

    tokens: int

    async def run(self, search: Search) -> None:
        await search.root.extend(Until.THINK, max_tokens=self.tokens)
        await search.root.conclude()
        search.offer(search.root)


class Retires(Strategy, tag="retires", kw_only=True, frozen=True):
    """Offers three, and takes the first ones out of the choice."""

    retired: int

    async def run(self, search: Search) -> None:
        branches = search.root.fork(3)
        for branch in branches:
            await branch.extend(Until.ANSWER)
            search.offer(branch)
        search.retire(branches[: self.retired])
        assert search.incumbent is not None

    def selection(self) -> Select:
        return Select.MAJORITY


@pytest.mark.parametrize(("retired", "answer"), [(0, "1"), (1, "1"), (2, "2"), (3, "1")])
def test_retired_offers_count_only_where_there_is_no_other_answer(retired: int, answer: str) -> None:
    order: dict[int, int] = {}

    def script(text: str, seed: int) -> str:
        number = order.setdefault(seed, len(order))
        return f"|{(1, 1, 2)[number % 3]}$"[len(text) - 6 :]

    solution = solve(ScriptedEngine({"policy": script}), Retires(retired=retired))
    assert solution.answer == answer
    assert len(solution.candidates) == 3


def test_a_hybrid_whose_prompt_closed_its_thinking_answers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def chat(self: Any, messages: list[Message], *, think: bool | None = None) -> list[int]:
        return self.encode(f"Q{messages[-1].content}:<\n\n|\n\n")

    monkeypatch.setattr(scripting.CharTokenizer, "chat", chat)
    profile = msgspec.structs.replace(THINKER, think_start="<", final_answer="eos")
    run = ScriptedEngine(
        {"policy": lambda text, seed: "5$"[len(text.partition("|\n\n")[2]) :]}, profile=profile
    )
    solution = solve(run, Greedy())
    assert (solution.answer, solution.text) == ("5", "5$")
