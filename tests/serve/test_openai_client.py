"""The real openai client against a server: whole answers, choices, streams, async, and errors."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from branchwise import Budget, solve

openai = pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")

if TYPE_CHECKING:
    from support.serving import ServerThread

PROBLEM = "Use 3, 7 and 12 to make 43"
HARD = "Use 3, 7, 12 and 18 to make 45"
CALCULATOR: Any = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Compute an expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
CALLED: Any = {
    "id": "c1",
    "type": "function",
    "function": {"name": "calculator", "arguments": '{"expression": "1+1"}'},
}
GIVEN: Any = {"role": "tool", "tool_call_id": "c1", "content": "2"}
MESSAGES: Any = [{"role": "user", "content": PROBLEM}]
NESTED: Any = json.loads('{"items":' * 300 + "{}" + "}" * 300)
WIDE: Any = {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(2500)}}
"""More branches at once than the grammar's parser follows."""


@pytest.fixture
def client(server: "ServerThread") -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        yield client


def ask(client: Any, **options: Any) -> Any:
    """A chat on the usual problem with the usual seed."""
    usual: dict[str, Any] = {"model": "reference:best_of_n(n=4)", "messages": MESSAGES, "seed": 1}
    return client.chat.completions.create(**(usual | options))


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def with_properties(properties: Any) -> dict[str, Any]:
    """A tool whose parameters have these properties."""
    return {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}


def named(function: str) -> dict[str, Any]:
    """The tool choice that a function must be called."""
    return {"type": "function", "function": {"name": function}}


def joined(stream: Any, index: int = 0) -> dict[str, str]:
    """Content and thinking of one choice, and why it ended, from the chunks of a stream."""
    found = {"content": "", "reasoning_content": "", "finish_reason": ""}
    for chunk in stream:
        for choice in chunk.choices:
            if choice.index == index:
                found["content"] += choice.delta.content or ""
                found["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
                found["finish_reason"] = choice.finish_reason or found["finish_reason"]
    return found


def test_a_strategy_is_chosen_by_the_models_name(client: Any) -> None:
    reply = ask(client)
    alone = solve(PROBLEM, "best_of_n(n=4)", budget=Budget(tokens=1000), seed=1)
    assert reply.choices[0].message.content == alone.answer == "12*3+7"
    assert reply.choices[0].message.reasoning_content == alone.thinking
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.completion_tokens == alone.usage.tokens
    assert reply.usage.prompt_tokens == alone.usage.prompt_tokens
    assert reply.choices[0].search["strategy"]["n"] == 4


@pytest.mark.parametrize(
    "strategy", ["best_of_n(n=3)", {"type": "best_of_n", "n": 3}, {"type": "beam", "n": 4, "width": 2}]
)
def test_a_strategy_is_chosen_by_the_body(client: Any, strategy: Any) -> None:
    reply = ask(client, model="reference", extra_body={"strategy": strategy, "budget": {"tokens": 900}})
    report = reply.choices[0].search
    assert report["strategy"]["n"] == (4 if isinstance(strategy, dict) and strategy["type"] == "beam" else 3)
    assert reply.choices[0].message.content


def test_nested_strategies_may_be_objects(client: Any) -> None:
    inner = {"type": "chain", "max_think": 40}
    reply = ask(
        client, model="reference", extra_body={"strategy": {"type": "best_of_n", "n": 2, "inner": inner}}
    )
    assert reply.choices[0].search["strategy"]["inner"]["max_think"] == 40


def test_the_parts_of_what_was_spent_add_up(client: Any) -> None:
    usage = ask(client, messages=[{"role": "user", "content": HARD}]).usage
    details = usage.completion_tokens_details
    assert details.reasoning_tokens == details.thinking_tokens + details.discarded_tokens
    assert details.reasoning_tokens < usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_spent_budget_is_a_success_of_finish_reason_length(client: Any) -> None:
    reply = ask(client, messages=[{"role": "user", "content": HARD}], extra_body={"budget": {"tokens": 30}})
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens <= 30


def test_max_completion_tokens_bounds_all_that_is_spent(client: Any) -> None:
    reply = ask(client, messages=[{"role": "user", "content": HARD}], max_completion_tokens=50)
    assert reply.usage.completion_tokens <= 50


def test_max_tokens_bounds_the_candidate(client: Any) -> None:
    usage = ask(client, model="reference:greedy", max_tokens=10).usage
    assert usage.completion_tokens - usage.completion_tokens_details.discarded_tokens <= 10


def test_an_effort_is_a_budget(client: Any) -> None:
    # This one never stops early: with as many candidates as the budget allows it spends all it has.
    reply = ask(
        client,
        model="reference:best_of_n(n=none, select=majority, stop_on_verified=false)",
        reasoning_effort="low",
    )
    assert 800 < reply.usage.completion_tokens <= 1000


@pytest.mark.parametrize("stream", [False, True])
def test_without_effort_nothing_is_thought(client: Any, stream: bool) -> None:
    reply = ask(client, model="reference:greedy", reasoning_effort="none", stream=stream)
    chunks = list(reply) if stream else []
    found = joined(chunks) if stream else reply.choices[0].message.model_dump()
    alone = solve(PROBLEM, "greedy", budget=Budget(tokens=1000), seed=1, think=False)
    assert found["content"] == alone.conclusion
    assert not found.get("reasoning_content")


def test_choices_are_different_searches_within_one_budget(client: Any) -> None:
    reply = ask(client, n=3, temperature=1.5, messages=[{"role": "user", "content": HARD}])
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({choice.message.reasoning_content for choice in reply.choices}) > 1
    assert reply.usage.completion_tokens <= 1000


def test_a_stop_string_ends_the_content(client: Any) -> None:
    reply = ask(client, stop=["*3", "+"])
    assert reply.choices[0].message.content == "12"
    assert reply.choices[0].finish_reason == "stop"


def test_logprobs_are_those_of_the_answers_tokens(client: Any) -> None:
    choice = ask(client, logprobs=True).choices[0]
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
    assert all(token.logprob <= 0 for token in choice.logprobs.content)


@pytest.mark.parametrize("strategy", ["greedy", "best_of_n(n=4)", "deepconf(n=4)"])
def test_top_logprobs_are_the_likeliest_tokens_in_their_order(client: Any, strategy: str) -> None:
    choice = ask(client, model=f"reference:{strategy}", logprobs=True, top_logprobs=3).choices[0]
    assert choice.logprobs.content
    for token in choice.logprobs.content:
        leading = [other.logprob for other in token.top_logprobs]
        assert len(leading) == 3
        assert leading == sorted(leading, reverse=True)
        assert token.logprob <= leading[0] + 1e-6
        assert strategy != "greedy" or token.token == token.top_logprobs[0].token


@pytest.mark.parametrize(
    "strategy", ["greedy", "chain", "best_of_n(n=2, temperature=0.7)", "beam(n=4, width=2)"]
)
def test_a_token_that_a_bias_bans_is_nowhere_in_the_answer(
    server: "ServerThread", client: Any, strategy: str
) -> None:
    (token,) = server.reasoner.models["policy"].tokenizer.encode("*")
    usual = ask(client, model=f"reference:{strategy}").choices[0].message
    choice = ask(client, model=f"reference:{strategy}", logit_bias={str(token): -100}).choices[0]
    assert "*" in usual.content + usual.reasoning_content
    assert "*" not in choice.message.content + choice.message.reasoning_content


def test_the_same_seed_gives_the_same_answer(client: Any) -> None:
    first, second = (ask(client, seed=5, messages=[{"role": "user", "content": HARD}]) for _ in range(2))
    assert first.choices[0].message == second.choices[0].message
    assert first.usage.completion_tokens == second.usage.completion_tokens


@pytest.mark.parametrize(
    "model", ["reference:greedy", "reference:best_of_n(n=4)", "reference:beam(n=4, width=2)"]
)
def test_the_deltas_of_a_stream_joined_are_the_answer(client: Any, model: str) -> None:
    whole = ask(client, model=model).choices[0]
    streamed = joined(ask(client, model=model, stream=True))
    assert streamed["content"] == whole.message.content
    assert streamed["reasoning_content"] == whole.message.reasoning_content
    assert streamed["finish_reason"] == whole.finish_reason


def test_one_path_is_streamed_as_it_is_written(client: Any) -> None:
    thinking = [
        part
        for chunk in ask(client, model="reference:greedy", stream=True)
        for choice in chunk.choices
        if (part := getattr(choice.delta, "reasoning_content", None))
    ]
    assert len(thinking) > 1


def test_the_text_of_every_branch_is_among_the_events_as_it_comes(client: Any) -> None:
    model = "reference:best_of_n(n=4, select=majority, stop_on_verified=false)"
    chunks = list(
        ask(client, model=model, stream=True, extra_body={"stream_options": {"search_events": True}})
    )
    wrote = [c.search_event for c in chunks if not c.choices and c.search_event["event"] == "wrote"]
    assert {event["branch"] for event in wrote} == {f"0.{index}" for index in range(4)}


def test_a_stream_gives_every_choice_and_the_usage(client: Any) -> None:
    options = {"include_usage": True}
    whole = ask(client, n=2)
    chunks = list(ask(client, n=2, stream=True, stream_options=options))
    for index in (0, 1):
        assert joined(chunks, index)["content"] == whole.choices[index].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].choices == []


def test_the_events_of_the_search_come_in_the_stream_where_they_are_asked_for(client: Any) -> None:
    chunks = list(ask(client, stream=True, extra_body={"stream_options": {"search_events": True}}))
    kinds = [chunk.search_event["event"] for chunk in chunks if not chunk.choices]
    assert kinds[0] == "branchopened"
    assert kinds[-1] == "ended"
    assert {"stepdone", "scored", "offered"} <= set(kinds)
    assert all(not hasattr(chunk, "search_event") for chunk in ask(client, stream=True))


def test_the_async_client_gets_whole_answers_and_streams(server: "ServerThread") -> None:
    async def both() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="x") as client:
            options: Any = {"model": "reference:greedy", "messages": MESSAGES}
            whole = await client.chat.completions.create(**options)
            stream = await client.chat.completions.create(**options, stream=True)
            parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
            return whole.choices[0].message.content or "", "".join(parts)

    whole, streamed = anyio.run(both)
    assert whole == streamed == "12*3+7"


def test_completions_answer_each_prompt(client: Any) -> None:
    reply = client.completions.create(
        model="reference:greedy", prompt=[PROBLEM, "12 + 7*3 - 5"], n=2, logprobs=1
    )
    assert [choice.text for choice in reply.choices] == ["12*3+7", "12*3+7", "28", "28"]
    assert "".join(reply.choices[2].logprobs.tokens) == "28"
    stream = client.completions.create(model="reference:greedy", prompt=PROBLEM, stream=True)
    assert "".join(choice.text for chunk in stream for choice in chunk.choices) == "12*3+7"


def test_models_lists_every_strategy(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert {"reference", "reference:best_of_n", "reference:beam"} <= set(names)
    assert client.models.retrieve("reference:beam").id == "reference:beam"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"messages": [{"role": "user", "content": "hello"}]}, "cannot read"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "image_url"),
        ({"model": "reference:best_of_m"}, "best_of_n"),
        ({"model": "reference:best_of_n(n=0)"}, "n"),
        ({"extra_body": {"strategy": {"n": 2}}, "model": "reference"}, "type"),
        ({"extra_body": {"strategy": "greedy"}}, "one of the two"),
        ({"extra_body": {"budget": {"tokens": 0}}}, "tokens"),
        ({"extra_body": {"budget": {"tokens": 100_000}}}, "at most 20000"),
        ({"extra_body": {"budget": "tokens=many"}}, "tokens"),
        ({"extra_body": {"budget": {"tokens": 2}}, "n": 4}, "shared by 4"),
        ({"n": 0}, "n"),
        ({"stop": ""}, "stop"),
        ({"temperature": -1}, "temperature"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"logit_bias": {"12": 101}}, "logit_bias"),
        ({"logit_bias": {"twelve": 5}}, "logit_bias"),
        ({"tools": [{"type": "function", "function": {"name": "no name"}}]}, "name"),
        ({"tools": [CALCULATOR], "tool_choice": "any"}, "tool_choice: give"),
        ({"tools": [CALCULATOR], "tool_choice": {"type": "function"}}, "tool_choice: give"),
        ({"tool_choice": "required"}, "give tools"),
        ({"tools": [CALCULATOR], "tool_choice": named("abacus")}, "there are calculator"),
        (
            {"tools": [CALCULATOR], "tool_choice": "required", "response_format": {"type": "json_object"}},
            "one of the two",
        ),
        ({"tools": [CALCULATOR, CALCULATOR]}, "two have one name"),
        (
            {"messages": [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [CALLED]}, GIVEN]},
            "tools",
        ),
        ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": json_schema({"type": "nonsense"})}, "schema: "),
        ({"response_format": json_schema(NESTED)}, "schema: recursion limit"),
        ({"tools": [with_properties(5)], "tool_choice": "required"}, "tool_choice: "),
        ({"extra_body": {"budget": "9" * 10_000}}, "not of the form"),
        ({"messages": [{"role": "user", "content": "1+" * 20_000}]}, "..."),
    ],
)
def test_what_cannot_be_answered_is_a_bad_request_that_says_why(
    client: Any, options: dict[str, Any], said: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, stream=stream, **options)
        assert said in caught.value.message
        assert len(caught.value.message) < 2500
        assert caught.value.type == "invalid_request_error"


def test_a_schema_that_proves_too_large_while_it_is_written_is_a_bad_request(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="too large to keep to"):
        ask(client, response_format=json_schema(WIDE))


def test_parameters_of_any_form_are_let_in_where_no_call_is_wanted(client: Any) -> None:
    for properties in (5, {"a": True}, {"a": 5}):
        assert ask(client, tools=[with_properties(properties)]).choices


def test_an_answer_has_the_schema_that_was_asked_for(client: Any) -> None:
    form = json_schema({"type": "integer", "minimum": 20, "maximum": 30})
    messages = [{"role": "user", "content": "12 + 7*3 - 5"}]
    reply = ask(client, messages=messages, response_format=form)
    assert json.loads(reply.choices[0].message.content) == 28
    other = json_schema({"type": "integer", "minimum": 1000, "maximum": 9999})
    reply = ask(client, messages=messages, response_format=other)
    assert 1000 <= json.loads(reply.choices[0].message.content) <= 9999
    streamed = joined(
        ask(client, messages=messages, response_format=form, model="reference:greedy", stream=True)
    )
    assert streamed["content"] == "28"


def test_fields_that_only_openais_servers_look_at_are_let_in(client: Any) -> None:
    plain, full = (
        ask(client, messages=messages, **more)
        for messages, more in (
            (MESSAGES, {}),
            (
                [
                    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "us"},
                    {"role": "user", "content": [{"type": "text", "text": PROBLEM}], "name": "me"},
                ],
                {
                    "metadata": {"run": "1"},
                    "modalities": ["text"],
                    "parallel_tool_calls": False,
                    "prediction": {"type": "content", "content": "43"},
                    "prompt_cache_key": "k",
                    "safety_identifier": "s",
                    "service_tier": "auto",
                    "store": False,
                    "tools": None,
                    "user": "u",
                    "verbosity": "low",
                    "extra_body": dict.fromkeys(("logit_bias", "max_tokens", "n", "stop", "stream_options")),
                },
            ),
        )
    )
    assert full.choices[0].message == plain.choices[0].message
    assert full.usage.completion_tokens == plain.usage.completion_tokens


@pytest.mark.parametrize("model", ["gpt-9", "reference:", "referenced"])
def test_a_model_that_is_not_served_is_not_found(client: Any, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model=model)
    assert caught.value.code == "model_not_found"
