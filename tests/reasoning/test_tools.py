"""Tools in the loop: what a call is, what becomes of it, and what is charged."""

import random
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any

import anyio
import msgspec
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import UsageError
from branchwise.engine.text.stop import Stop, Until
from branchwise.evals.reference.tasks import toolcall
from branchwise.evals.reference.tasks.trace import Split
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.events import Event, ToolCalled
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.reasoning.tools.calculator import CALCULATOR, evaluate
from branchwise.reasoning.tools.call import read_object
from branchwise.reasoning.tools.python import python_tool
from branchwise.reasoning.tools.tool import MOST_CHARACTERS, Tool
from branchwise.strategies.base import Strategy
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.sandbox import sandbox_fault
from branchwise.verifiers.vote import Select
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from support.scripted import PLAIN
from support.searching import scripted, solve

DECLARED = msgspec.structs.replace(CALCULATOR, function=None)
MAJORITY = BestOfN(n=3, select=Select.MAJORITY)


async def double(number: int, *, times: Annotated[int, Meta(ge=1, le=8)] = 2) -> int:
    """Multiply a whole number.

    More is not told to the model.
    """
    return number * times


async def fails(text: str) -> str:
    raise RuntimeError(f"no {text}\nat all")


async def hangs() -> None:
    await anyio.sleep_forever()


async def long() -> str:
    return "x" * (2 * MOST_CHARACTERS)


def call(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def result(text: str) -> str:
    return f"<tool_response>{text}</tool_response>"


def said(*parts: str) -> Callable[[str, int], str]:
    """A writer of one text, whose parts include the results that will be put there."""
    return lambda prompt, seed: "".join(parts)


def run(plan: Callable[[str, int], str], *tools: Tool, strategy: Strategy | None = None, **options: Any):
    engine = scripted(plan, profile=PLAIN)
    events: list[Event] = []
    budget = options.pop("budget", None)
    solution = solve(engine, strategy or Greedy(), budget, tools=tools, on_event=events.append, **options)
    return solution, [event for event in events if isinstance(event, ToolCalled)], engine


TERMS = st.lists(st.tuples(st.sampled_from("+-*"), st.integers(0, 10**6)), min_size=1, max_size=5)


@given(first=st.integers(-50, 50), terms=TERMS)
def test_the_calculator_computes_what_python_does(first: int, terms: list[tuple[str, int]]) -> None:
    text = str(first) + "".join(f" {sign} {number}" for sign, number in terms)
    assert evaluate(text) == str(eval(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1/3", "0.333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("2^10", "1024"),
        ("(1 + 2) × 3 ÷ 2", "4.5"),
        ("7 // 2 - -7 % 4", "2"),
    ],
)
def test_the_calculator_is_exact(text: str, value: str) -> None:
    assert evaluate(text) == value
    assert Fraction(value).limit_denominator(10**6) == Fraction(value) or len(value) == 14


@pytest.mark.parametrize(
    "text", ["", "1/0", "9**9**9", "2**100000", "__import__('os')", "x", "True", "1 +", "(" * 900, "1" * 2000]
)
def test_the_calculator_refuses_in_one_line(text: str) -> None:
    outcome = anyio.run(CALCULATOR.call, {"expression": text})
    assert outcome.failed
    assert outcome.text.startswith("error: ")
    assert "\n" not in outcome.text


def test_a_tool_is_described_by_its_function() -> None:
    tool = Tool.of(double)
    assert (tool.name, tool.description) == ("double", "Multiply a whole number.")
    assert tool.parameters["required"] == ["number"]
    assert tool.parameters["properties"]["times"] == {
        "type": "integer", "minimum": 1, "maximum": 8, "default": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"number": 4}, "8"), ({"number": 4, "times": 3}, "12")],
)
def test_a_call_has_the_value_of_its_function(arguments: dict[str, Any], text: str) -> None:
    outcome = anyio.run(Tool.of(double).call, arguments)
    assert (outcome.text, outcome.failed) == (text, False)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (Tool.of(double), {"number": "four"}, "Expected `int`"),
        (Tool.of(double), {"number": 4, "times": 9}, "<= 8"),
        (Tool.of(double), {}, "missing required field `number`"),
        (Tool.of(double), {"number": 4, "other": 1}, "unknown field `other`"),
        (Tool.of(fails), {"text": "luck"}, "no luck at all"),
        (Tool.of(hangs, timeout_s=0.05), {}, "no result within 0.05 s"),
    ],
)
def test_a_failing_tool_is_a_result(tool: Tool, arguments: dict[str, Any], said: str) -> None:
    outcome = anyio.run(tool.call, arguments)
    assert outcome.failed
    assert outcome.text.startswith("error: ")
    assert said in outcome.text


def test_a_long_result_is_cut() -> None:
    assert len(anyio.run(Tool.of(long).call, {}).text) == MOST_CHARACTERS + 3


def test_what_cannot_be_a_tool_is_refused_in_one_line() -> None:
    async def spread(*values: int) -> None: ...

    async def odd(value: Callable[[], None]) -> None: ...

    for function in (spread, odd, lambda: None):
        with pytest.raises(UsageError, match=r"^tool ") as caught:
            Tool.of(function)  # pyright: ignore[reportArgumentType]  # a wrong one on purpose
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="two have one name"):
        run(said("4$"), CALCULATOR, CALCULATOR)


@pytest.mark.skipif(sandbox_fault() is not None, reason="needs a sandbox")
def test_python_runs_in_the_sandbox() -> None:
    tool = python_tool(timeout_s=60.0)

    async def main() -> list[Any]:
        programs = (
            "print(sum(range(10)))",
            "print(1); 1/0",
            "import socket; socket.create_connection(('127.0.0.1', 80))",
            "open('/etc/passwd')",
            "x = bytearray(4 << 30)",
            "print('y' * 10**6)",
        )
        return [await tool.call({"code": program}) for program in programs]

    total, divided, network, files, memory, much = anyio.run(main)
    assert total.text == "45"
    assert divided.text == "1\nerror: ZeroDivisionError: division by zero"
    assert "error: " in network.text
    assert "FileNotFoundError" in files.text
    assert "MemoryError" in memory.text
    assert len(much.text) == MOST_CHARACTERS + 3


@pytest.mark.skipif(sandbox_fault() is not None, reason="needs a sandbox")
def test_a_program_that_does_not_end_is_killed() -> None:
    outcome = anyio.run(python_tool(timeout_s=1.0).call, {"code": "import time; time.sleep(60)"})
    assert outcome.text == "error: no result within 1 s"


def test_a_call_is_run_and_its_result_appended_and_charged() -> None:
    body = '{"name": "calculator", "arguments": {"expression": "6*7"}}'
    solution, called, engine = run(said(call(body), result("42"), "42$"), CALCULATOR)
    assert solution.text == f"{call(body)}{result('42')}42$"
    assert [(one.call, one.result) for one in called] == [('calculator({"expression":"6*7"})', "42")]
    forced = len("</tool_call>" + result("42"))
    assert solution.usage.tokens == engine.tokens_sampled + forced
    assert engine.live_sequences == 0


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_branch_that_is_pruned_while_its_tool_runs_gets_no_result_and_pays_none(reproducible: bool) -> None:
    async def main() -> None:
        called, go_on = anyio.Event(), anyio.Event()

        async def wait() -> str:
            called.set()
            await go_on.wait()
            return "late"

        engine = scripted(said(call('{"name": "wait", "arguments": {}}'), "7$"), profile=PLAIN)
        async with (
            Reasoner.over(engine, reproducible=reproducible) as reasoner,
            reasoner.session(Problem(text="task"), seed=0, tools=[Tool.of(wait)]) as root,
        ):
            (branch,) = root.fork(1)
            stops: list[Stop] = []
            spent = 0

            async def extend() -> None:
                stops.append((await branch.extend(Until.ANSWER)).stop)

            async with anyio.create_task_group() as group:
                group.start_soon(extend)
                await called.wait()
                spent = root.budget.tokens_spent
                branch.prune("not wanted")
                go_on.set()
            assert stops == [Stop.CANCELLED]
            assert root.budget.tokens_spent == root.graph.tokens_spent == spent
            assert root.budget.kv_owned == 0
        assert engine.live_sequences == 0

    anyio.run(main)


def test_a_model_may_call_again_and_again() -> None:
    solution, called, _ = run(
        said(call("1+1"), result("2"), "so ", call("2*2"), result("4"), "4$"), CALCULATOR
    )
    assert [one.result for one in called] == ["2", "4"]
    assert solution.text.endswith("4$")


@pytest.mark.parametrize(
    ("body", "answered"),
    [
        ('{"name": "other", "arguments": {}}', "error: no tool 'other'; there are double"),
        ('{"name": "double", "arguments": 3}', 'error: "arguments" is no object'),
        (
            '{"name": "double", "arguments": {"number": NaN}}',
            "error: the call is not JSON (JSON is malformed: invalid character (byte 43))",
        ),
        ('{"arguments": {}}', 'error: the call is no object with a "name"'),
        (
            '{"name": "double", "arguments": {"number": "x"}}',
            "error: Expected `int`, got `str` - at `$.number`",
        ),
    ],
)
def test_a_wrong_call_is_answered_and_the_chain_goes_on(body: str, answered: str) -> None:
    solution, called, _ = run(said(call(body), result(answered), "7$"), Tool.of(double))
    assert [one.result for one in called] == [answered]
    assert called[0].failed
    assert solution.text.endswith("7$")


def test_a_call_is_nested_as_deeply_as_it_likes() -> None:
    assert read_object('{"name": "f", "arguments": "' + "[" * 9000 + '"}').fault == '"arguments" is no object'
    assert read_object("[" * 9000).fault == "the call is not JSON (it is nested too deeply)"


def test_a_budget_that_does_not_cover_the_result_ends_the_search() -> None:
    plan = said(call("1+1"), result("2"), "2$")
    solution, _, engine = run(plan, CALCULATOR, budget=Budget(tokens=len(call("1+1")) + 4))
    assert solution.reason is Reason.BUDGET
    assert solution.usage.tokens <= len(call("1+1")) + 4
    assert engine.live_sequences == 0


def test_calls_for_the_caller_end_the_branch_and_vote_by_their_canonical_form() -> None:
    spellings = [
        call('{"name": "calculator", "arguments": {"expression": "6*7"}}'),
        call('{"arguments":{"expression":"6*7"},"name":"calculator"}'),
        call('{"name": "calculator", "arguments": {"expression": "7*6"}}'),
    ]
    taken: dict[int, str] = {}

    def plan(prompt: str, seed: int) -> str:
        return taken.setdefault(seed, spellings[len(taken) % 3])

    solution, called, _ = run(plan, DECLARED, strategy=MAJORITY)
    assert not called
    assert solution.answer == 'calculator({"expression":"6*7"})'
    assert [one.arguments for one in solution.calls] == [{"expression": "6*7"}]
    assert all(candidate.complete for candidate in solution.candidates)
    answers = [candidate.answer for candidate in solution.candidates]
    assert sorted(answers, key=str) == sorted([solution.answer] * 2 + [answers[-1]], key=str)


def on_reference(*asked: tuple[str, Strategy, tuple[Tool, ...]]) -> list[Solution]:
    """Solutions of the shipped policy on prompts of its calculator task."""

    async def main() -> list[Solution]:
        async with Reasoner.open("reference") as opened:
            assert isinstance(opened.backend, Engine)
            source = msgspec.structs.replace(opened.source, tasks_only=False)
            async with Reasoner.over(opened.backend, source=source) as reasoner:
                return [
                    await reasoner.solve(
                        Problem(text=text), strategy, Budget(tokens=300), seed=1, tools=tools
                    )
                    for text, strategy, tools in asked
                ]

    return anyio.run(main)


def test_the_shipped_policy_solves_held_out_problems_through_calls() -> None:
    rng = random.Random(5)
    instances = [toolcall.generate(rng, Split.HELD_OUT) for _ in range(10)]
    solutions = on_reference(*((toolcall.prompt(one), Greedy(), (CALCULATOR,)) for one in instances))
    right = [
        solution.answer == str(toolcall.call_result(one.expression)) and "<result>" in solution.text
        for one, solution in zip(instances, solutions, strict=True)
    ]
    assert sum(right) >= 8


def test_every_kind_of_search_calls_tools() -> None:
    strategies: list[Strategy] = [MAJORITY, Beam(n=4, width=2)]
    for solution in on_reference(*(("T37*45+12:", strategy, (CALCULATOR,)) for strategy in strategies)):
        assert solution.text == "<call>37*45+12</call><result>1677</result></think>1677<eos>"


def test_best_of_n_over_actions_votes_on_calls() -> None:
    (solution,) = on_reference(("T37*45+12:", MAJORITY, (DECLARED,)))
    assert solution.answer == 'calculator({"expression":"37*45+12"})'
    assert solution.calls[0].name == "calculator"
