"""Sweeps name what they say, and bad ones are refused in one line."""

import contextlib

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.runs.sweep import expand_strategies, split_commas
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("greedy", ["greedy"]),
        ("best_of_n()", ["best_of_n"]),
        ("best_of_n(n=4,16,64)", ["best_of_n(n=4)", "best_of_n(n=16)", "best_of_n(n=64)"]),
        ("best_of_n(n=4..64*2)", [f"best_of_n(n={n})" for n in (4, 8, 16, 32, 64)]),
        ("best_of_n(n=4..50*2)", [f"best_of_n(n={n})" for n in (4, 8, 16, 32)]),
        ("best_of_n(n=4..10+3)", [f"best_of_n(n={n})" for n in (4, 7, 10)]),
        ("best_of_n(n=2..4)", [f"best_of_n(n={n})" for n in (2, 3, 4)]),
        ("best_of_n(n=2, 8..16*2)", [f"best_of_n(n={n})" for n in (2, 8, 16)]),
        (
            "best_of_n(n=4,16,select=majority)",
            ["best_of_n(n=4, select=majority)", "best_of_n(n=16, select=majority)"],
        ),
        (
            "best_of_n(n=1,2, select=majority,borda)",
            [f"best_of_n(n={n}, select={s})" for n in (1, 2) for s in ("majority", "borda")],
        ),
        (
            "best_of_n(n=none, temperature=0.5,1.0)",
            [f"best_of_n(n=none, temperature={t})" for t in (0.5, 1.0)],
        ),
    ],
)
def test_a_sweep_names_its_strategies_in_order(text: str, names: list[str]) -> None:
    assert list(expand_strategies([text])) == names


def test_what_is_named_twice_runs_once() -> None:
    assert expand_strategies(["best_of_n(n=16,4)", "best_of_n", "best_of_n(n=4)"]) == (
        "best_of_n(n=16)",
        "best_of_n(n=4)",
    )


@pytest.mark.parametrize(
    "text",
    [
        "best_of_n(n=8..4*2)",
        "best_of_n(n=4..8*1)",
        "best_of_n(n=0..8*2)",
        "best_of_n(n=4..8+0)",
        "best_of_n(n=1..100000)",
        "best_of_n(n=4,,8)",
        "best_of_n(n=)",
        "best_of_n(4,8)",
        "best_of_n(n=4,many)",
        "best_of_n(n=4",
        "best(n=4)",
        "",
    ],
)
def test_a_bad_sweep_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand_strategies([text])
    assert len(str(caught.value).splitlines()) == 1


@given(st.text(alphabet="ab,=()[]{}'\"0.*+ ", max_size=40))
def test_any_text_is_a_sweep_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert expand_strategies([text])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a,b", ["a", "b"]),
        ("a(b,c),d", ["a(b,c)", "d"]),
        ("[a,b],'c,d'", ["[a,b]", "'c,d'"]),
    ],
)
def test_commas_in_brackets_and_quotes_do_not_split(text: str, parts: list[str]) -> None:
    assert split_commas(text) == parts
