"""From bodies to searches: budgets, efforts, ceilings, strategies, messages."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import oracle_info

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise import Budget, UsageError
from branchwise.engine.text.tokenizer import Message, ToolUse
from branchwise.serve.errors import ApiError
from branchwise.serve.messages import read_messages
from branchwise.serve.reading import Call, divided, read_chat, read_model, read_strategy
from branchwise.serve.schema import CalledFunction, ChatMessage, ChatRequest, ToolCall
from branchwise.serve.settings import Settings, checked_settings
from branchwise.strategies.grammar import as_dict, format_strategy, parse_strategy

CEILING = Budget(tokens=20_000, seconds=60.0)


def read(settings: Settings | None = None, **body: Any) -> Call:
    usual = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    request = msgspec.convert(usual | body, ChatRequest)
    return read_chat(request, settings or Settings(name="m", ceiling=CEILING), oracle_info())


@pytest.mark.parametrize(
    ("effort", "tokens"), [("minimal", 250), ("low", 1000), ("medium", 4000), ("high", 16_000)]
)
def test_an_effort_is_so_many_tokens(effort: str, tokens: int) -> None:
    assert read(reasoning_effort=effort).asks[0].budget == Budget(tokens=tokens, seconds=60.0)


def test_no_effort_is_the_usual_budget_without_thinking() -> None:
    (ask,) = read(reasoning_effort="none").asks
    assert (ask.budget.tokens, ask.think) == (4000, False)
    assert read(reasoning_effort="low").asks[0].think is None


@pytest.mark.parametrize("effort", ["xhigh", "max"])
def test_the_largest_efforts_get_what_the_server_has(effort: str) -> None:
    assert read(reasoning_effort=effort).asks[0].budget.tokens == CEILING.tokens


def test_an_effort_above_the_ceiling_gets_the_ceiling() -> None:
    small = Settings(name="m", budget=Budget(tokens=500), ceiling=Budget(tokens=2000))
    assert read(small, reasoning_effort="high").asks[0].budget.tokens == 2000


def test_a_budget_goes_before_an_effort_and_the_default() -> None:
    assert read(budget={"tokens": 70}, reasoning_effort="high").asks[0].budget.tokens == 70
    assert read(budget="tokens=7k").asks[0].budget.tokens == 7000
    assert read().asks[0].budget.tokens == 4000


def test_limits_that_a_request_leaves_open_are_the_ceilings() -> None:
    assert read(budget={"seconds": 5}).asks[0].budget == Budget(tokens=20_000, seconds=5.0)


def test_choices_share_the_budget() -> None:
    call = read(n=3, budget={"tokens": 100})
    assert [ask.budget.tokens for ask in call.asks] == [33, 33, 33]
    assert call.tokens == 99
    assert len({ask.problem.id for ask in call.asks}) == 3


@pytest.mark.parametrize("strategy", ["best_of_n(n=1024)", "best_of_n(n=32, inner=best_of_n(n=32))"])
def test_choices_have_no_more_candidates_together_than_a_server_can_hold(strategy: str) -> None:
    assert len(read(n=4, strategy=strategy).asks) == 4
    with pytest.raises(ApiError, match="5 choices of 1024 candidates"):
        read(n=5, strategy=strategy)


@given(
    st.builds(
        Budget,
        tokens=st.none() | st.integers(1, 500),
        flops=st.none() | st.integers(1, 10**12),
        seconds=st.none() | st.floats(0.1, 100),
    ),
    st.integers(1, 64),
)
def test_the_parts_of_a_budget_never_pass_the_whole(budget: Budget, count: int) -> None:
    try:
        part = divided(budget, count)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017  # either is right: which one, the figures say
        assert min(budget.tokens or count, budget.flops or count) < count
        return
    for name in ("tokens", "flops"):
        whole = getattr(budget, name)
        assert whole is None or 1 <= getattr(part, name) * count <= whole
    assert part.seconds == budget.seconds


@pytest.mark.parametrize(
    "text",
    [
        "greedy",
        "best_of_n(n=3, select=majority)",
        "best_of_n(n=none)",
        "best_of_n(n=2, inner=chain(max_think=40))",
        "chain(wait='Hold on, ')",
        "beam(n=4, width=2)",
    ],
)
def test_a_strategy_as_an_object_is_the_one_that_its_text_names(text: str) -> None:
    strategy = parse_strategy(text)
    assert read_strategy(as_dict(strategy)) == strategy
    assert read_strategy(format_strategy(strategy)) == strategy


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": 3},
        {"type": "greedy)"},
        {"type": "best_of_n", "n=2, select": 1},
        {"type": "best_of_n", "n": {"a": 1}},
        {"type": "best_of_n", "n": [[[]]]},
        {"type": "best_of_n", "n": "16; import os"},
        {"type": "best_of_n", "n": 2**200},
        "[" * 3000,
        "best_of_n(inner=" * 200,
        "greedy" + " " * 5000,
        "best_of_n(n=" + "-" * 3900 + "1)",
        "\x00",
        "",
    ],
)
def test_what_is_no_strategy_is_refused(value: dict[str, Any] | str) -> None:
    with pytest.raises((ApiError, UsageError)):
        read_strategy(value)


@pytest.mark.parametrize("strategy", ["greedy", "best_of_n(n=2, temperature=0.5)"])
def test_a_bias_is_part_of_the_sampling(strategy: str) -> None:
    assert read(strategy=strategy, logit_bias={"7": -100, "3": 2.5}).asks[0].sampling.logit_bias == {
        7: -100.0,
        3: 2.5,
    }


@pytest.mark.parametrize("name", ["", "-1", "1.0", "x", "\u0663", "1" * 500, "10000"])
def test_a_bias_of_what_is_no_token_is_refused(name: str) -> None:
    with pytest.raises(ApiError, match="is no token id of this model"):
        read(logit_bias={name: 1.0})


def test_the_last_user_turn_is_the_problem() -> None:
    problem = read_messages(
        [
            ChatMessage(role="system", content="be brief"),
            ChatMessage(role="user", content="first"),
            ChatMessage(role="assistant", content="yes"),
            ChatMessage(role="developer", content="be kind"),
            ChatMessage(role="user", content="second"),
        ]
    )
    assert (problem.text, problem.system) == ("second", "be brief\n\nbe kind")
    assert [(turn.role, turn.content) for turn in problem.messages] == [
        ("user", "first"),
        ("assistant", "yes"),
    ]


def test_calls_and_results_stand_behind_the_problem() -> None:
    call = ToolCall(id="c1", function=CalledFunction(name="f", arguments='{"x": 1}'))
    problem = read_messages(
        [
            ChatMessage(role="user", content="first"),
            ChatMessage(role="assistant", tool_calls=[call]),
            ChatMessage(role="tool", content="2", tool_call_id="c1"),
        ]
    )
    assert (problem.text, problem.messages) == ("first", ())
    assert problem.since == (
        Message("assistant", "", (ToolUse("f", {"x": 1}),)),
        Message("tool", "2"),
    )


@pytest.mark.parametrize(
    "arguments", ["{", "3", "[]", '{"a": NaN}', '{"a": "\\ud800"}', '{"a": 1e999}', "[" * 9000]
)
def test_arguments_of_an_earlier_call_must_be_an_object(arguments: str) -> None:
    call = ToolCall(id="c1", function=CalledFunction(name="f", arguments=arguments))
    with pytest.raises(ApiError, match="no JSON object"):
        read_messages(
            [
                ChatMessage(role="user", content="first"),
                ChatMessage(role="assistant", tool_calls=[call]),
                ChatMessage(role="tool", content="2"),
            ]
        )


@pytest.mark.parametrize(("name", "strategy"), [("a/b:c", None), ("a/b:c:greedy", "greedy")])
def test_a_model_whose_name_has_a_colon_takes_strategies_too(name: str, strategy: str | None) -> None:
    assert read_model(name, Settings(name="a/b:c")) == strategy


@pytest.mark.parametrize(
    ("budget", "ceiling", "said"),
    [
        (Budget(tokens=10), Budget(seconds=1.0), "must limit tokens"),
        (Budget(tokens=10), Budget(tokens=5), "above --ceiling"),
        (Budget(seconds=9.0), Budget(tokens=5, seconds=3.0), "seconds=9"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(budget: Budget, ceiling: Budget, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked_settings(Settings(name="m", budget=budget, ceiling=ceiling))
