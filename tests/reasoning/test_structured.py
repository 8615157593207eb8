"""Answers of a schema: whatever a random model writes, whole answers parse and fit; under forks, truncation,
appended text and drafts."""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import anyio
import jsonschema
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.grammar import json_grammar
from branchwise.engine.text.stop import Stop, Until
from branchwise.reasoning.answer_schema import json_answer
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.chain import Chain
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.vote import Select
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scripted import CharTokenizer
from support.searching import outside_engine, scripted, solve
from support.tiny import save_model

pytest.importorskip("llguidance")

LEAVES = st.sampled_from(
    [
        {"type": "boolean"},
        {"type": "null"},
        {"type": "integer", "minimum": -20, "maximum": 300},
        {"enum": ["red", "green", 3, None]},
        {"type": "string", "maxLength": 4},
        {"type": "string", "pattern": "^[a-c]{1,3}$"},
        {"const": {"a": [1, "é"]}},
    ]
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    fields = st.dictionaries(st.sampled_from(["a", "bc", "d é"]), inner, min_size=1, max_size=2)
    return fields.map(
        lambda found: {
            "type": "object",
            "properties": found,
            "required": sorted(found),
            "additionalProperties": False,
        }
    )


def arrays(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return inner.map(lambda items: {"type": "array", "items": items, "maxItems": 2})


SCHEMAS = LEAVES | objects(LEAVES) | arrays(LEAVES) | objects(arrays(LEAVES)) | objects(objects(LEAVES))
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}
QUICKLY = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Opened:
    """A reasoner on a random model, in a thread with an event loop of its own."""

    def __init__(self, portal: BlockingPortal, reasoner: Reasoner) -> None:
        self._portal = portal
        self.reasoner = reasoner

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return self._portal.call(work)

    def solve(self, strategy: Strategy, schema: Any, tokens: int = 600, **options: Any) -> Solution:
        """Thinking is over before it began: all that is written is the answer."""
        usual: dict[str, Any] = {"think": False, "system": "J", "seed": 1, "schema": schema}
        budget = Budget(tokens=tokens)
        return self.run(
            lambda: self.reasoner.solve("Give JSON.", strategy, budget, **(usual | options)),
        )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("structured") / "qwen"
    save_model(folder, "Qwen3", max_position_embeddings=1024)
    with start_blocking_portal() as portal:
        opening = Reasoner.open(str(folder), threads=1, reproducible=True)
        with portal.wrap_async_context_manager(opening) as reasoner:
            yield Opened(portal, reasoner)


def check(answer: str | None, schema: dict[str, Any]) -> None:
    assert answer is not None
    jsonschema.validate(json.loads(answer), schema)


@QUICKLY
@given(schema=SCHEMAS, seed=st.integers(0, 1000), temperature=st.sampled_from([0.0, 0.4, 1.0]))
def test_every_whole_answer_of_every_fork_fits_with_and_without_drafts(tiny, schema, seed, temperature):
    strategy = BestOfN(n=3, select=Select.MAJORITY)
    options = {"seed": seed, "temperature": temperature, "max_tokens": 150}
    plain = tiny.solve(strategy, schema, **options)
    drafted = tiny.solve(strategy, schema, **options, speculate="ngram(k=4)")
    assert outside_engine(plain) == outside_engine(drafted)
    assert len(plain.candidates) == 3
    for candidate in plain.candidates:
        assert candidate.complete == (candidate.answer is not None)
        if candidate.complete:
            check(candidate.answer, schema)
    if plain.answer is not None:
        assert json.loads(plain.conclusion) == json.loads(plain.answer)


def test_a_whole_answer_is_the_usual_end(tiny):
    solution = tiny.solve(BestOfN(n=4, select=Select.MAJORITY), PERSON)
    assert all(candidate.complete for candidate in solution.candidates)
    check(solution.answer, PERSON)


def test_drafts_that_the_grammar_forbids_are_proposed_and_never_stay(tiny):
    schema = {"type": "array", "items": {"enum": ["aaaa", "aaab"]}, "minItems": 12, "maxItems": 12}
    for speculate in ("ngram(k=4)", "ngram(k=4, verify=ratio)", "suffix(k=4)"):
        solution = tiny.solve(BestOfN(n=2, select=Select.MAJORITY), schema, speculate=speculate)
        assert solution.usage.engine["draft_tokens"] > solution.usage.engine["accepted_tokens"]
        check(solution.answer, schema)


def test_a_budget_that_ends_inside_the_answer_says_so(tiny):
    solution = tiny.solve(Greedy(), PERSON, tokens=6)
    assert solution.reason is Reason.BUDGET
    assert solution.answer is None
    assert not any(candidate.complete for candidate in solution.candidates)


def test_thinking_is_free_and_the_answer_behind_it_is_not(tiny):
    solution = tiny.solve(Chain(max_think=10, waits=0), PERSON, think=None)
    assert solution.thinking
    check(solution.answer, PERSON)
    with pytest.raises(json.JSONDecodeError):
        json.loads(solution.thinking)


def test_equal_objects_vote_together_however_they_are_written():
    assert json_answer('{"b": 1, "a":[ 2 ]}') == json_answer('{"a":[2],"b":1}') == '{"a":[2],"b":1}'
    for text in ('{"a": NaN}', '{"a": 1e999}', '"\\ud800"', "[" * 9000):  # nothing that could be sent
        assert json_answer(text) == text


def test_a_branch_that_is_cut_forked_and_appended_to_still_fits(tiny):
    async def work():
        session = tiny.reasoner.session(
            "Give JSON.", Budget(tokens=500), schema=PERSON, think=False, system="J", seed=1
        )
        async with session as root:
            await root.extend(Until.ANSWER, max_tokens=4)
            assert not root.complete
            root.truncate(1)
            with pytest.raises(UsageError, match="would not fit its schema"):
                await root.append("nonsense")
            await root.append('"name": "Gr')
            texts = []
            for branch in root.fork(3):
                await branch.extend(Until.ANSWER)
                texts.append(branch.conclusion)
                check(branch.answer, PERSON)
                branch.truncate(len(branch.tokens) - 1)
                assert not branch.complete
                assert branch.answer is None
                step = await branch.extend(Until.STEP)
                assert step.stop in (Stop.ANSWER, Stop.EOS)
                check(branch.answer, PERSON)
            return texts

    assert all(text.startswith('{"name": "Grace"') for text in tiny.run(work))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nonsense"}, "Invalid type"),
        ({"$ref": "#/nowhere"}, "does not exist"),
        ({"type": "string", "pattern": "("}, "regex"),
        ({"not": {}}, "Unimplemented"),
        ({"enum": {1}}, "not JSON"),
        (json.loads('{"items":' * 300 + "{}" + "}" * 300), "recursion limit"),
        ([], "as an object"),
    ],
)
def test_a_bad_schema_is_refused_in_one_line(tiny, schema, said):
    with pytest.raises(UsageError, match=said) as caught:
        tiny.solve(Greedy(), schema)
    assert str(caught.value).startswith("schema")
    assert "\n" not in str(caught.value)


def test_an_engine_that_cannot_constrain_refuses_a_schema():
    with pytest.raises(CapabilityError, match="cannot constrain"):
        solve(scripted(), Greedy(), schema=PERSON)


def test_a_vocabulary_that_cannot_begin_the_schema_is_refused():
    class Digits(CharTokenizer):
        """Ids 0 to 9 are the digits, 10 is the end."""

        vocab_size = 11

        def decode(self, ids: Sequence[int]) -> str:
            return "".join("0123456789$"[token] for token in ids)

    digits = Digits()
    grammar = json_grammar({"type": "integer"}, digits, frozenset({10}), 11)
    assert grammar.fits([4, 2])
    assert not grammar.fits([0, 4])
    mask = grammar.begin([4], 12).allowed()
    assert mask is not None
    assert mask.tolist() == [True] * 11 + [False]
    with pytest.raises(UsageError, match="vocabulary"):
        json_grammar({"type": "string"}, digits, frozenset({10}), 11)


def test_a_character_level_model_answers_in_a_schema():
    async def main():
        async with Reasoner.open("reference") as reasoner:
            return await reasoner.solve(
                "12 + 7*3 - 5", BestOfN(n=2), Budget(tokens=300), seed=1, schema={"type": "integer"}
            )

    assert anyio.run(main).answer == "28"
