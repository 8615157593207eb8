"""Verifiers by name and parameters: one grammar with strategies, one line where something is wrong."""

import enum
from typing import Annotated, Any

import pytest
from branchwise.engine.errors import UsageError
from branchwise.strategies.grammar import parse_strategy
from branchwise.verifiers.base import Candidate, Score, Verifier
from branchwise.verifiers.calls import Call, format_value, parse_call, parse_value
from branchwise.verifiers.combine import AllOf, AnyOf, FirstThatDecides
from branchwise.verifiers.confidence import ConfidenceVerifier, Measure
from branchwise.verifiers.judge import JudgeVerifier, Mode
from branchwise.verifiers.named import NamedVerifier, full_name, verifier_parameters
from branchwise.verifiers.nearest import unknown
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.registry import find_verifier
from branchwise.verifiers.reward import RewardVerifier
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

PROBLEM = Problem(text="1 + 1")


class Bound:
    """Made for one problem, with parameters."""

    name = "bound"
    sound = True
    oracle = True
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.problem = problem
        self.tolerance = tolerance

    @classmethod
    def for_problem(
        cls, problem: Problem, *, tolerance: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5
    ) -> "Bound":
        return cls(problem, tolerance)

    async def score(self, candidate: Candidate) -> Score:
        return Score()


class Plain:
    """Takes nothing."""

    name = "plain"

    async def score(self, candidate: Candidate) -> Score:
        return Score()


class Wraps:
    """Takes one verifier."""

    def __init__(self, inner: Verifier, *, weight: int | None = None) -> None:
        self.inner = inner
        self.name = full_name("wraps", inner=inner)

    async def score(self, candidate: Candidate) -> Score:
        return await self.inner.score(candidate)


KINDS = {
    "prm": RewardVerifier,
    "judge": JudgeVerifier,
    "confidence": ConfidenceVerifier,
    "all_of": AllOf,
    "any_of": AnyOf,
    "first_that_decides": FirstThatDecides,
    "bound": Bound,
    "plain": Plain,
    "wraps": Wraps,
}


def find(name: str):
    if name not in KINDS:
        raise UsageError(unknown("verifier", name, KINDS))
    return KINDS[name]


def made(text: str) -> Any:
    return NamedVerifier.parse(text, find).make(PROBLEM)


def test_parameters_reach_the_class_converted() -> None:
    prm = made("prm(aggregation=window, window=5)")
    assert (prm.aggregation, prm.window) == ("window", 5)
    judge = made("judge(mode=critique, model=policy, critiques=2, think=none)")
    assert (judge.mode, judge.model, judge.critiques, judge.think) == (Mode.CRITIQUE, "policy", 2, None)
    confidence = made("confidence(measure=tail, share=1)")
    assert (confidence.measure, confidence.share) == (Measure.TAIL, 1.0)
    bound = made("bound(tolerance=0)")
    assert (bound.problem, bound.tolerance) == (PROBLEM, 0.0)


def test_nested_verifiers_are_made_for_the_problem() -> None:
    both = made("all_of(of=[bound, prm(aggregation=prod), any_of(of=[plain])])")
    assert [type(member) for member in both.of] == [Bound, RewardVerifier, AnyOf]
    assert both.of[0].problem is PROBLEM
    assert made("wraps(inner=bound(tolerance=1))").inner.tolerance == 1.0
    assert made("wraps(inner=plain)").name == "wraps(inner=plain)"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("prm", "prm"),
        ("prm()", "prm"),
        ("prm(aggregation=last)", "prm"),
        (" prm( aggregation = 'prod' ) ", "prm(aggregation=prod)"),
        ("judge(mode=verdict, model=policy)", "judge(model=policy)"),
        ("all_of(of=[prm(window=4), plain])", "all_of(of=[prm(window=4), plain])"),
        ("confidence(measure=mean, top_k=5)", "confidence(measure=mean, top_k=5)"),
        ("first_that_decides(of=[any_of(of=[plain, prm]), judge(mode=score)])", None),
    ],
)
def test_the_full_name_is_the_text_that_reads_back(text: str, name: str | None) -> None:
    named = NamedVerifier.parse(text, find)
    assert str(named) == (name or text)
    assert str(NamedVerifier.parse(str(named), find)) == str(named)
    assert named.make(PROBLEM).name == str(named)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("prn", "verifier 'prn': not known; did you mean prm? there are: "),
        ("prm(aggregation=mid)", "verifier prm: aggregation='mid': give one of last, min, prod, mean, "),
        ("prm(agregation=min)", "verifier prm: unknown parameter 'agregation'; did you mean aggregation: "),
        ("prm(window=0)", "verifier prm: window=0: give 1 to 1024 (an integer)"),
        ("prm(window=1.5)", "verifier prm: window=1.5: give 1 to 1024 (an integer)"),
        ("plain(x=1)", "verifier plain: unknown parameter 'x'; it takes none"),
        ("prm(min)", "verifier prm: 'min' has no name; write parameter=value"),
        ("prm(window=2, window=3)", "verifier "),
        ("prm(", "verifier 'prm(': cannot be read; write name or name(parameter=value, ...)"),
        ("prm + 1", "verifier 'prm + 1': write name or name(parameter=value, ...)"),
        ("all_of", "verifier all_of: of is missing; give 1 to 16 of them (a list of verifiers)"),
        ("all_of(of=[])", "verifier all_of: of=(): give 1 to 16 of them (a list of verifiers)"),
        ("all_of(of=prm)", "verifier all_of: of='prm': give 1 to 16 of them (a list of verifiers)"),
        ("all_of(of=[1])", "verifier all_of: of=(1,): give 1 to 16 of them (a list of verifiers)"),
        ("all_of(of=[prn])", "verifier 'prn': not known; "),
        ("all_of(of=[prm(window=0)])", "verifier prm: window=0: give 1 to 1024"),
        ("wraps(inner=3)", "verifier wraps: inner=3: give a verifier"),
        ("bound(problem=1)", "verifier bound: unknown parameter 'problem'; it takes tolerance: "),
        ("bound(tolerance=2)", "verifier bound: tolerance=2: give 0 to 1 (a number)"),
        ("judge(model=gpt)", "verifier judge: model='gpt': give one of judge, policy, draft"),
        ("prm(window=__import__('os'))", "verifier __import__: "),
        ("prm(window=1 + 1)", "value '1 + 1': give a number, text, true, false, none, a word or a verifier"),
        ("x" * 5000, "verifier "),
    ],
)
def test_what_is_wrong_is_one_line_that_says_what_would_be_right(text: str, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        NamedVerifier.parse(text, find)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_both_grammars_read_the_same_values() -> None:
    values = "[1, -2.5, 'x', word, true, none, inner(k=[a])]"
    assert parse_value(values, "verifier") == [1, -2.5, "x", "word", True, None, Call("inner", {"k": ["a"]})]
    with pytest.raises(UsageError, match=r"^strategy 'best_of_m': not known"):
        parse_strategy("best_of_m(n=1)")


class Colour(enum.StrEnum):
    RED = "red"
    NONE = "none"
    TWO_WORDS = "two words"


grammar_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(grammar_values)
def test_a_written_value_reads_back(value: object) -> None:
    assert parse_value(format_value(value), "verifier") == value


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,6}_x", fullmatch=True), grammar_values, min_size=1, max_size=3)
)
def test_a_written_call_reads_back(arguments: dict[str, object]) -> None:
    call = Call("outer", {"inner": Call("name", arguments)})
    assert parse_call(format_value(call), "verifier") == call


@pytest.mark.parametrize("member", Colour)
def test_words_of_an_enumeration_read_back(member: Colour) -> None:
    assert parse_value(format_value(member), "verifier") == member.value


def test_parameters_are_told_with_ranges_and_defaults() -> None:
    told = {parameter.name: parameter for parameter in verifier_parameters(JudgeVerifier)}
    assert told["critiques"].expected == "1 to 256 (an integer)"
    assert told["critiques"].default == 4
    [of] = verifier_parameters(AllOf)
    assert of.required
    assert verifier_parameters(Plain) == ()
    assert [parameter.name for parameter in verifier_parameters(Bound)] == ["tolerance"]


def test_registered_verifiers_take_parameters_by_name() -> None:
    prm = find_verifier("prm(aggregation=min)", PROBLEM)
    assert isinstance(prm, RewardVerifier)
    assert prm.name == "prm(aggregation=min)"
