"""The strategy grammar: what it reads, that it reads back what it writes, and its one-line errors."""

import enum
import json
from typing import Annotated

import pytest
from branchwise.engine.errors import UsageError
from branchwise.strategies.base import Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.grammar import as_dict, format_strategy, parse_strategy, with_settings
from branchwise.strategies.greedy import Greedy
from branchwise.verifiers.nearest import unknown
from branchwise.verifiers.vote import Select
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta


class Order(enum.StrEnum):
    """Values that are words, look like constants, or are no words at all."""

    BEST_FIRST = "best_first"
    NOTHING = "none"
    DASHED = "depth-first"


class Leaf(Strategy, tag="leaf", kw_only=True, frozen=True):
    """A strategy without a strategy in it."""

    n: Annotated[int, Meta(ge=1, le=4096)] | None = 16
    rate: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.5
    depth: Annotated[int, Meta(ge=0)] = 0
    order: Order = Order.BEST_FIRST
    eager: bool = True
    prompt: str = ""
    stops: tuple[str, ...] = ()


class Nest(Strategy, tag="nest", kw_only=True, frozen=True):
    """A strategy around another."""

    inner: Strategy = Leaf()
    other: Strategy | None = None
    rounds: Annotated[int, Meta(ge=1)] = 2


def find_example(name: str) -> type[Strategy]:
    """The class of an example's name."""
    known: dict[str, type[Strategy]] = {"leaf": Leaf, "nest": Nest}
    if name not in known:
        raise UsageError(unknown("strategy", name, known))
    return known[name]


leaves = st.builds(
    Leaf,
    n=st.none() | st.integers(1, 4096),
    rate=st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
    depth=st.integers(0, 10**30),
    order=st.sampled_from(Order),
    eager=st.booleans(),
    prompt=st.text(max_size=30),
    stops=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
nested = st.recursive(
    leaves,
    lambda inner: st.builds(Nest, inner=inner, other=st.none() | inner, rounds=st.integers(1, 9)),
    max_leaves=4,
)


def read(text: str) -> Strategy:
    return parse_strategy(text, find_example)


@given(nested)
def test_what_is_written_reads_back(strategy: Strategy):
    assert read(format_strategy(strategy)) == strategy


@given(nested)
def test_the_json_form_is_plain(strategy: Strategy):
    plain = as_dict(strategy)
    assert plain["type"] == type(strategy).__struct_config__.tag
    assert json.loads(json.dumps(plain)) is not None


@given(st.text(max_size=80) | st.text(alphabet="leafnst()=,'[]*-. 1N\n", max_size=40))
def test_any_text_is_a_strategy_or_one_line_of_error(text: str):
    try:
        strategy = read(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
        return
    assert isinstance(strategy, Strategy)


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("greedy", Greedy()),
        (" greedy() ", Greedy()),
        ("best_of_n", BestOfN()),
        ("best_of_n(n=32)", BestOfN(n=32)),
        ("best_of_n(\n  n=none,\n  select=majority,\n)", BestOfN(n=None, select=Select.MAJORITY)),
        ("best_of_n(n=None, stop_on_verified=False)", BestOfN(n=None, stop_on_verified=False)),
        (
            "best_of_n(stop_on_verified=false, temperature=1)",
            BestOfN(stop_on_verified=False, temperature=1.0),
        ),
        ('best_of_n(select="borda")', BestOfN(select=Select.BORDA)),
    ],
)
def test_own_strategies(text: str, strategy: Strategy):
    assert parse_strategy(text) == strategy


def test_values_of_every_kind():
    text = "nest(inner=leaf(n=3, rate=1e-3, prompt='a \"b\"', stops=['x', y]), other=leaf, rounds=7)"
    inner = Leaf(n=3, rate=0.001, prompt='a "b"', stops=("x", "y"))
    assert read(text) == Nest(inner=inner, other=Leaf(), rounds=7)
    assert read("leaf(order='none')") == Leaf(order=Order.NOTHING)
    assert read("leaf(order='depth-first')") == Leaf(order=Order.DASHED)


def test_defaults_are_left_out_and_json_has_all():
    assert format_strategy(BestOfN()) == "best_of_n"
    assert format_strategy(BestOfN(n=4, select=Select.MAJORITY)) == "best_of_n(n=4, select=majority)"
    assert format_strategy(Nest(inner=Leaf(n=2))) == "nest(inner=leaf(n=2))"
    assert as_dict(BestOfN(n=4)) == {
        "type": "best_of_n",
        "n": 4,
        "select": "weighted_vote",
        "stop_on_verified": True,
        "temperature": None,
        "parallel": None,
        "inner": None,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bestofn", "strategy 'bestofn': not known; did you mean best_of_n"),
        ("best-of-n(n=3)", "strategy 'best-of-n': not known; did you mean best_of_n"),
        ("best_of_n(n=0)", "strategy best_of_n: n=0: give 1 to 4096 (an integer or none)"),
        ("best_of_n(n=4097)", "n=4097: give 1 to 4096"),
        ("best_of_n(n=abc)", "n='abc': give 1 to 4096 (an integer or none)"),
        ("best_of_n(n=2.5)", "n=2.5: give 1 to 4096"),
        ("best_of_n(n=True)", "n=True: give 1 to 4096"),
        ("best_of_n(select=majorty)", "select='majorty': give one of max_score, weighted_vote, majority"),
        ("best_of_n(stop_on_verified=1)", "stop_on_verified=1: give true or false"),
        ("best_of_n(temperature=-1)", "temperature=-1: give 0 to 100 (a number or none)"),
        ("best_of_n(width=3)", "unknown parameter 'width'; it takes n: 1 to 4096"),
        ("best_of_n(selct=borda)", "unknown parameter 'selct'; did you mean select: one of max_score"),
        ("greedy(n=1)", "strategy greedy: unknown parameter 'n'; it takes none"),
        ("best_of_n(32)", "strategy best_of_n: '32' has no name; write parameter=value"),
        ("best_of_n(n=1, n=2)", "strategy best_of_n: n is given twice"),
        ("best_of_n(**x)", "write parameter=value"),
        ("best_of_n(n=1+1)", "value '1 + 1': give a number, text"),
        ("adaptive(table=my_table.json)", "a word or a strategy; text that is no word takes quotes"),
        ("adaptive(table=/tmp/table.json)", "write name or name(parameter=value, ...), text in quotes"),
        ("best_of_n(n=", "cannot be read; write name or name(parameter=value, ...)"),
        ("best_of_n(n=3)()", "write name or name(parameter=value, ...)"),
        ("", "strategy '': cannot be read"),
        ("x" * 5000, "not known"),
        ("__import__('os').system('x')", "strategy '__import__': not known"),
        ("best_of_n(n=greedy)", "n='greedy': give 1 to 4096"),
        ("best_of_n(n=greedy())", "give 1 to 4096"),
    ],
)
def test_errors_say_what_would_be_right(text: str, message: str):
    with pytest.raises(UsageError) as caught:
        parse_strategy(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_ranges_of_every_kind_are_told():
    for text, told in [
        ("leaf(rate=0)", "above 0 to below 1 (a number)"),
        ("leaf(depth=-1)", "0 or more (an integer)"),
        ("nest(inner=3)", "give a strategy"),
        ("nest(inner=leaf(n=0))", "strategy leaf: n=0"),
        ("nest(inner=laef)", "did you mean leaf?"),
        ("leaf(stops=3)", "give a list of text"),
    ]:
        with pytest.raises(UsageError) as caught:
            read(text)
        assert told in str(caught.value)


def test_a_range_holds_in_python_too():
    with pytest.raises(UsageError, match=r"^strategy best_of_n: n=0: give 1 to 4096 \(an integer or none\)$"):
        BestOfN(n=0)


def test_settings_replace_parameters_at_any_depth():
    assert with_settings(BestOfN(), {"n": "32", "select": "majority"}) == BestOfN(
        n=32, select=Select.MAJORITY
    )
    nest = Nest(inner=Nest(inner=Leaf(n=2)))
    changed = with_settings(nest, {"inner.inner.n": "5", "rounds": "3"}, find_example)
    assert changed == Nest(inner=Nest(inner=Leaf(n=5)), rounds=3)
    assert with_settings(Leaf(), {"prompt": "think again, please"}) == Leaf(prompt="think again, please")
    assert with_settings(Nest(), {"inner": "leaf(n=1)"}, find_example) == Nest(inner=Leaf(n=1))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("n", "0", "n=0: give 1 to 4096"),
        ("n", "many", "n='many': give 1 to 4096"),
        ("m", "1", "unknown parameter 'm'"),
        ("m.n", "1", "unknown parameter 'm'"),
        ("n.m", "1", "n is no strategy"),
        ("", "1", "unknown parameter ''"),
    ],
)
def test_wrong_settings(setting: str, value: str, message: str):
    with pytest.raises(UsageError) as caught:
        with_settings(BestOfN(), {setting: value})
    assert message in str(caught.value)
