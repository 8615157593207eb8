"""Answer keys: equal answers share one, different answers never do."""

from fractions import Fraction

import pytest
from branchwise.verifiers.answer import canonical, equivalent
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "spellings",
    [
        ["1/2", "0.5", ".50", r"\frac12", r"\dfrac{1}{2}", "50%", r"50\%", "½", "2/4", "5e-1"],
        ["3/2", "1 1/2", "1½", r"1\frac{1}{2}", "1.5"],
        [
            "70",
            "70.0",
            "70.",
            "070",
            r"70^\circ",
            "70°",
            "$70",
            r"\$70",
            r"70\text{ cm}",
            "x = 70",
            "(70)",
            "７０",
        ],
        ["-5", "−5", "- 5", "-5.0", "-10/2"],
        ["1234567", "1,234,567", "1 234 567", r"1{,}234{,}567", r"1,\!234,\!567", r"1\,234\,567"],
        ["2000", "2e3", r"2 \times 10^{3}", r"2\cdot10^3", "2 × 10³"],
        ["(1,1/2)", "( 1, 0.5 )", r"\left(1,\frac{1}{2}\right)"],
        [r"\{1,2\}", r"\left\{ 2, 1 \right\}", "{1, 2}"],
        ["-1, 1", "1,-1", "x=1 or x=-1", "1 and -1"],
        ["B", "(B)", "(b)", "B.", r"\text{(B)}", r"\textbf{B}", "B) 12 apples"],
        [r"[2,\infty)", "[2, ∞)"],
        ["yes", "Yes", " YES. "],
        [r"\frac{\sqrt{3}}{2}", r"\dfrac{\sqrt{3}}{2}", r"\frac{√{3}}{2}"],
        [r"\pi", "π"],
    ],
)
def test_spellings_of_one_answer_share_a_key(spellings: list[str]):
    keys = {spelling: canonical(spelling) for spelling in spellings}
    assert len(set(keys.values())) == 1, keys
    assert None not in keys.values()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1234567", "1234571"),
        ("11", "711"),
        ("49", "149"),
        ("50", "50%"),
        ("(1,2)", "(2,1)"),
        (r"\{1,2\}", "(1,2)"),
        ("(1,2)", "[1,2]"),
        ("1,234", "1, 234"),
        ("12 3", "123"),
        ("x", "y"),
        ("x^2", "x2"),
        ("11111_2", "11111"),
        (r"5\text{ million}", "5"),
        ("0.333", "1/3"),
        ("b", "B"),
        ("1/0", "0"),
    ],
)
def test_different_answers_differ(first: str, second: str):
    assert not equivalent(first, second)


@pytest.mark.pins("Math-Verify#14")
@pytest.mark.pins("Math-Verify#60")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1/2004!", "1/2006!"),
        ("2^{-99}", "2^{-98}"),
        (r"1-1/\mathrm{e}", r"1+1/\mathrm{e}"),
        ("3*x-1*y+13=0", "3x+4y+14=0"),
        ("10^(10^(10^10))", "9^(9^(9^9))"),
    ],
)
def test_what_symbolic_graders_confuse_differs(first: str, second: str):
    assert not equivalent(first, second)


def test_an_empty_answer_has_no_key():
    assert [canonical(text) for text in ("", "  ", "?", "...", "()", r"\,")] == [None] * 6
    assert not equivalent("", "")


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1e99999", "(" * 1000 + "5" + ")" * 1000, "\\text{" * 600, "9," * 1900]
)
def test_oversized_answers_are_compared_as_text(text: str):
    assert canonical(text)


@given(st.fractions(max_denominator=10**6))
def test_a_rational_reads_back_as_itself(value: Fraction):
    assert canonical(str(value)) == str(value)
    assert canonical(
        rf"{'-' if value < 0 else ''}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"
    ) == str(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_exact(value: object):
    assert canonical(f"{value:,f}") == str(Fraction(str(value)))


@given(st.lists(st.integers(-2000, 2000), min_size=2, max_size=5), st.sampled_from(["()", "[]", "{}", "[)"]))
def test_keys_of_collections_are_their_own_keys(values: list[int], brackets: str):
    key = canonical(brackets[0] + ", ".join(map(str, values)) + brackets[1])
    assert key is not None
    assert canonical(key) == key


@given(st.text(max_size=60))
def test_any_text_gets_a_key_or_none(text: str):
    key = canonical(text)
    assert key is None or key


@given(st.text(alphabet="0123456789+-*/(){},.% \\$eExAB=", max_size=30))
def test_equivalence_is_symmetric(text: str):
    other = f" {text} "
    assert equivalent(text, other) == equivalent(other, text) == (canonical(text) is not None)
