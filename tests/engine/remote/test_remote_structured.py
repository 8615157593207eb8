"""Answers of a schema that a server writes: they fit, whatever it writes by itself and wherever it is cut."""

import json
from collections.abc import Sequence
from typing import Any

import anyio
import jsonschema
import pytest
from branchwise.engine.errors import CapabilityError, ServerFailed
from branchwise.engine.protocol import EngineUsage, ExtendParams
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.remote.request import only
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.text.grammar import Constraint, json_grammar
from branchwise.engine.text.stop import Stop, StopRule, Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.strategies.best_of_n import BestOfN
from branchwise.verifiers.vote import Select
from hypothesis import given, settings
from hypothesis import strategies as st
from support.openai_server import LOGPROB, Fault, StandInServer, serving
from support.remote import (
    END,
    FULL,
    PROMPT,
    Purse,
    remote_engine,
    run,
    scripted_info,
    scripted_server,
    text_of,
)
from support.scripted import CharTokenizer

pytest.importorskip("llguidance")

TAGS = {"type": "array", "items": {"enum": ["x", 1]}, "maxItems": 2}
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "tags": TAGS},
    "required": ["name", "tags"],
    "additionalProperties": False,
}
SCHEMAS = st.sampled_from(
    [
        PERSON,
        {"type": "boolean"},
        {"type": "integer", "minimum": -20, "maximum": 300},
        {"type": "string", "pattern": "^[a-c]{1,5}$"},
        {"type": "array", "items": {"enum": ["red", None]}, "minItems": 2, "maxItems": 4},
    ]
)
MANY = 400
FOLLOWING = '{"name": "Grace", "tags": [1]}'


def stubborn(text: str, seed: int) -> str:
    """Prose that no schema allows."""
    return "the quick brown fox; "[len(text) % 21]


def compliant(text: str, seed: int) -> str:
    """The answer itself, which needs no correction."""
    return (FOLLOWING + "$")[len(text) - len(PROMPT) :]


def params(
    schema: dict[str, Any], sampling: SamplingParams = GREEDY, until: Until = Until.END
) -> ExtendParams:
    grammar = json_grammar(schema, CharTokenizer(), END, CharTokenizer.vocab_size)
    rule = StopRule(until=until, eos_ids=END)
    return ExtendParams(
        sampling=sampling, stop=rule, max_tokens=MANY, constraint=Constraint(grammar, len(PROMPT))
    )


def answered(server: StandInServer, schema: dict[str, Any], purse: Purse, **options: Any) -> str:
    """The whole answer, however many extensions it takes; without its end."""

    async def body(engine: RemoteEngine) -> str:
        seq, tokens, stop = engine.open(PROMPT, seed=1), [], Stop.MARK
        while stop is Stop.MARK:
            extension = await engine.extend(seq, params(schema, until=Until.STEP), purse)
            tokens += extension.tokens
            stop = extension.stop
        assert stop in (Stop.ANSWER, Stop.EOS)
        assert purse.paid == len(tokens)
        return text_of(tokens).removesuffix("$")

    return run(body, server, context=2 * MANY, **options)


@given(
    schema=SCHEMAS,
    lease=st.sampled_from([1, 2, 7, 40]),
    faults=st.lists(st.builds(lambda after: Fault(after=after), st.integers(0, 6)), max_size=2),
)
@settings(max_examples=4, deadline=None)
def test_the_answer_fits_and_does_not_depend_on_where_its_requests_end(
    schema: dict[str, Any], lease: int, faults: list[Fault]
):
    """A text in one request is masked by the server's own grammar; one that was cut is checked here."""
    whole = scripted_server(stubborn)
    expected = answered(whole, schema, Purse(), lease_tokens=MANY, script=stubborn)
    jsonschema.validate(json.loads(expected), schema)
    assert len(whole.requests) == 1

    cut = scripted_server(stubborn)
    cut.faults.extend(faults)
    assert answered(cut, schema, Purse(), lease_tokens=lease, script=stubborn) == expected


def test_the_server_is_told_the_schema_where_the_text_begins_and_single_tokens_where_it_does_not():
    server = scripted_server(stubborn)
    answered(server, PERSON, Purse(), lease_tokens=6, script=stubborn)
    first, *others = server.requests
    assert first["response_format"]["json_schema"]["schema"] == PERSON
    assert "allowed_token_ids" not in first
    assert not any("response_format" in request for request in others)
    redrawn = [request for request in others if "allowed_token_ids" in request]
    assert redrawn
    assert all(request["max_tokens"] == 1 for request in redrawn)


def test_a_text_that_fits_by_itself_costs_no_request_more():
    server = scripted_server(compliant)
    assert answered(server, PERSON, Purse(), lease_tokens=10, script=compliant) == FOLLOWING
    assert len(server.requests) == 3
    assert not any("allowed_token_ids" in request for request in server.requests)


def test_a_dropped_token_is_counted_as_a_draft_and_not_paid_for():
    server, usage, purse = scripted_server(stubborn), EngineUsage(), Purse()

    async def body(engine: RemoteEngine) -> int:
        seq = engine.open(PROMPT, seed=1, usage=usage)
        return len((await engine.extend(seq, params(PERSON), purse)).tokens)

    length = run(body, server, lease_tokens=1, script=stubborn)
    assert purse.paid == usage.decode_tokens == length
    assert usage.draft_tokens == sum("allowed_token_ids" in request for request in server.requests) > 0


def test_log_probabilities_are_those_of_the_model_or_not_told():
    """Behind a server's grammar they are those of what the grammar left."""
    server = scripted_server(compliant)
    asked = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.0, stats_top_k=3)]

    async def body(engine: RemoteEngine) -> list[Any]:
        return [
            await engine.extend(engine.open(PROMPT, seed=1), params(PERSON, sampling), Purse())
            for sampling in asked
        ]

    plain, detailed = run(body, server, lease_tokens=MANY, script=compliant)
    assert plain.tokens == detailed.tokens
    assert ["response_format" in request for request in server.requests] == [True, False]
    assert plain.logprobs == ()
    assert detailed.logprobs == (LOGPROB,) * len(detailed.tokens)
    assert len(detailed.stats) == len(detailed.tokens)


@pytest.mark.parametrize("restricts", ["allowed_token_ids", "logit_bias"])
def test_a_server_that_refuses_the_schema_or_knows_only_a_bias_is_kept_to_it_all_the_same(restricts: str):
    server = scripted_server(stubborn, refuses=("response_format",), restriction=restricts)
    dialect = Dialect(most_alternatives=20, restricts=restricts)
    answer = answered(server, PERSON, Purse(), lease_tokens=MANY, script=stubborn, dialect=dialect)
    jsonschema.validate(json.loads(answer), PERSON)
    assert ["response_format" in request for request in server.requests][:2] == [True, False]


def test_a_server_that_writes_what_it_was_told_not_to_is_refused_in_one_line_and_charges_nothing():
    server, purse = scripted_server(stubborn, restriction="", refuses=("response_format",)), Purse(50)

    async def body(engine: RemoteEngine) -> str:
        with pytest.raises(ServerFailed) as caught:
            await engine.extend(engine.open(PROMPT, seed=1), params(PERSON), purse)
        return str(caught.value)

    said = run(body, server, script=stubborn)
    assert said.startswith(server.url)
    assert said.endswith("none of those that fit the schema")
    assert (purse.paid, purse.left) == (0, 50)


def test_a_forked_and_appended_branch_goes_on_from_its_own_text():
    server = scripted_server(stubborn)

    async def body(engine: RemoteEngine) -> list[str]:
        root = engine.open(PROMPT, seed=1)
        engine.append(root, [ord(c) for c in '{"name": "Gr'])
        texts = []
        for seq in engine.fork(root, range(2)):
            extension = await engine.extend(seq, params(PERSON, SamplingParams()), Purse())
            texts.append('{"name": "Gr' + text_of(extension.tokens))
        return texts

    for text in run(body, server, context=2 * MANY, script=stubborn):
        assert json.loads(text)["name"] == "Grace"
        jsonschema.validate(json.loads(text), PERSON)
    assert not any("response_format" in request for request in server.requests)


def solving(dialect: Dialect) -> Any:
    def script(text: str, seed: int) -> str:
        return "hm;|"[len(text) - text.index(":") - 1 :] if "|" not in text else stubborn(text, seed)

    server = scripted_server(script)
    info = scripted_info(script, max_model_len=4000)

    async def main() -> Any:
        async with serving(server):
            engine = remote_engine({"policy": (info, [server])}, dialect=dialect)
            async with engine, Reasoner.over(engine) as reasoner:
                with anyio.fail_after(20):
                    strategy = BestOfN(n=3, select=Select.MAJORITY)
                    return await reasoner.solve("task", strategy, Budget(tokens=900), schema=PERSON, seed=1)

    return anyio.run(main)


def test_a_search_gives_answers_of_the_schema_behind_free_thinking():
    solution = solving(FULL)
    assert solution.error is None
    assert solution.thinking == "hm;"
    assert len(solution.candidates) == 3
    for candidate in solution.candidates:
        jsonschema.validate(json.loads(candidate.answer), PERSON)


@pytest.mark.parametrize("lacking", [{"restricts": ""}, {"ids_out": False}])
def test_a_server_that_cannot_be_kept_to_a_schema_is_refused_in_one_line_before_it_is_asked(lacking: Any):
    with pytest.raises(CapabilityError, match="cannot constrain"):
        solving(Dialect(most_alternatives=20, **lacking))


def test_a_bias_keeps_the_differences_between_what_it_lifts():
    biased = Dialect(restricts="logit_bias")
    among: Sequence[int] = (3, 5, 7)
    assert only(among, {}, biased) == {"logit_bias": {"3": 100.0, "5": 100.0, "7": 100.0}}
    own = {5: 2.0, 7: -1.0, 9: 50.0}
    assert only(among, own, biased) == {"logit_bias": {"3": 98.0, "5": 100.0, "7": 97.0}}
    assert only(among, {}, Dialect()) == {"allowed_token_ids": [3, 5, 7]}
