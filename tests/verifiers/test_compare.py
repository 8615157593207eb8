"""Typed comparison: the golden table of equal and different answers, and every public trap of graders."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from branchwise.verifiers import compare as compare_module
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.compare import Tier, Verdict, choice_letter, compare
from branchwise.verifiers.worker import Worker, WorkerFailed, WorkerTimeout
from hypothesis import given, settings
from hypothesis import strategies as st

T = AnswerType

EQUAL: list[tuple[AnswerType, str, str]] = [
    (T.INTEGER, "70.0", "70"),
    (T.INTEGER, "025", "25"),
    (T.INTEGER, "1,234", r"1{,}234"),
    (T.INTEGER, "18", "18 dollars"),
    (T.INTEGER, "18", "$18 per day"),
    (T.INTEGER, "-5", "−5"),
    (T.INTEGER, "1000", "1e3"),
    (T.RATIONAL, "1/2", "0.5"),
    (T.RATIONAL, r"\frac12", "½"),
    (T.RATIONAL, "1/3", r"0.\overline{3}"),
    (T.RATIONAL, "-7/6", r"-1.1\overline{6}"),
    (T.DECIMAL, ".0000672", "6.72e-5"),
    (T.DECIMAL, "3.21", "321/100"),
    (T.PERCENT, "50", "50%"),
    (T.PERCENT, "50%", "50 percent"),
    (T.TUPLE, "(1,1/2)", "1, 0.5"),
    (T.TUPLE, r"\left( 3, \frac{\pi}{2} \right)", "(3, pi/2)"),
    (T.SET, r"\{1,2\}", "2 and 1"),
    (T.SET, r"\{1,2\}", "1, 2"),
    (T.SET, r"1 \pm \sqrt{19}", r"\{1-\sqrt{19}, 1+\sqrt{19}\}"),
    (T.EXPRESSION, r"3 \pm 2 \sqrt{2}", r"3+2\sqrt{2}, 3-\sqrt{8}"),
    (T.EXPRESSION, r"\{1\pm\sqrt{5},-2\}", r"\{-2, 1-\sqrt{5}, 1+\sqrt{5}\}"),
    (T.EXPRESSION, "1,-2", "x = -2 or x = 1"),
    (T.INTERVAL, "(1,2)", "1 < x < 2"),
    (T.INTERVAL, "x ≥ √2", r"x \in [\sqrt{2}, \infty)"),
    (T.EXPRESSION, r"x \in [-2,7]", r"-2 \le x \le 7"),
    (T.EXPRESSION, r"[2,\infty)", r"m \ge 2"),
    (T.EXPRESSION, r"(-\infty, 2) \cup (3, \infty)", "x > 3 or x < 2"),
    (T.EXPRESSION, r"(3,4]", r"3 < y \leq 8/2"),
    (T.EXPRESSION, "6 - 5i", "-5i+6"),
    (T.EXPRESSION, r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"),
    (T.EXPRESSION, "(a+5)(b+2)", "ab+2a+5b+10"),
    (T.EXPRESSION, r"\frac{\sqrt3}{2}", "sqrt(3)/2"),
    (T.EXPRESSION, "11\\sqrt2", r"\sqrt{242}"),
    (T.EXPRESSION, "y = 2x + 3", "2x+3"),
    (T.EXPRESSION, "5x - 7y + 11z + 4 = 0", "-10x+14y-22z=8"),
    (T.EXPRESSION, r"\cot x", r"\frac{\cos x}{\sin x}"),
    (T.EXPRESSION, r"0.1\pi", r"\frac{\pi}{10}"),
    (T.EXPRESSION, r"\begin{pmatrix} -1/3 \\ 2 \end{pmatrix}", r"\begin{pmatrix}-\frac13\\ 4/2\end{pmatrix}"),
    (T.EXPRESSION, "864 \\mbox{ inches}^2", "864"),
    (T.EXPRESSION, r"\text{Evelyn}", "evelyn"),
    (T.CHOICE, "B", "(b) 12 apples"),
    (T.CHOICE, r"\text{(C)}", "C."),
    (T.STRING, "Yes", " yes. "),
    (T.STRING, "New  York", "“new york”"),
]  # fmt: skip

DIFFERENT: list[tuple[AnswerType, str, str]] = [
    (T.INTEGER, "11", "711"),
    (T.INTEGER, "49", "149"),
    (T.INTEGER, "1234567", "1234571"),
    (T.INTEGER, "50", "50%"),
    (T.INTEGER, "5", "5 million"),
    (T.INTEGER, "5", "5 and 6"),
    (T.INTEGER, "9", "16 - 3 - 4"),
    (T.INTEGER, "4", r"2\sqrt{4}"),
    (T.RATIONAL, "3", r"\log_2 8"),
    (T.RATIONAL, "1/3", "0.333"),
    (T.DECIMAL, "3.14", "3.14159"),
    (T.PERCENT, "50", "0.5"),
    (T.TUPLE, "(1,2)", "(2,1)"),
    (T.TUPLE, "(1,2)", r"\{1,2\}"),
    (T.TUPLE, "(1,2)", "(1,2,3)"),
    (T.SET, r"\{1,2\}", "(1,2)"),
    (T.SET, r"\{1,2\}", r"\{1,2,3\}"),
    (T.SET, r"\{1,2,3\}", r"\{1,2\}"),
    (T.INTERVAL, "(1,2)", "[1,2]"),
    (T.INTERVAL, "(1,2)", r"1 \le x < 2"),
    (T.EXPRESSION, r"(-\infty, 2) \cup (3, \infty)", r"(-\infty, 2)"),
    (T.EXPRESSION, "x > 2", "x < 2"),
    (T.EXPRESSION, "1/2004!", "1/2006!"),
    (T.EXPRESSION, "2^{-99}", "2^{-98}"),
    (T.EXPRESSION, r"1-1/\mathrm{e}", r"1+1/\mathrm{e}"),
    (T.EXPRESSION, "3*x-1*y+13=0", "3x+4y+14=0"),
    (T.EXPRESSION, "11111_2", "11111"),
    (T.EXPRESSION, "52_8", "52_9"),
    (T.EXPRESSION, r"\{1,2\}", "(1,2)"),
    (T.EXPRESSION, "x=1, y=2", "x=2, y=1"),
    (T.EXPRESSION, "3R^2", "3r^2"),
    (T.EXPRESSION, r"\sqrt{x^2}", "x"),
    (T.EXPRESSION, "x+1", "x+1+10^{-20}"),
    (T.EXPRESSION, r"\text{east}", r"\text{west}"),
    (T.EXPRESSION, "5", "x"),
    (T.EXPRESSION, "p - q", "q - p"),
    (T.CHOICE, "A", "A good idea"),
    (T.CHOICE, "A", "B"),
    (T.CHOICE, "A", "1"),
    (T.STRING, "yes", "no"),
    (T.STRING, "", ""),
]


@pytest.mark.parametrize(("kind", "first", "second"), EQUAL)
def test_equal_in_both_orders(kind: AnswerType, first: str, second: str):
    assert compare(first, second, kind).equal is True
    assert compare(second, first, kind).equal is True


@pytest.mark.pins("Math-Verify#14")
@pytest.mark.pins("Math-Verify#60")
@pytest.mark.pins("Math-Verify#64")
@pytest.mark.pins("PostTrainBench#44")
@pytest.mark.parametrize(("kind", "first", "second"), DIFFERENT)
def test_different_in_both_orders(kind: AnswerType, first: str, second: str):
    assert compare(first, second, kind).equal is False
    assert compare(second, first, kind).equal is False


def test_every_type_is_in_both_tables_or_graded_otherwise():
    assert {kind for kind, *_ in EQUAL} == {kind for kind, *_ in DIFFERENT} == set(AnswerType) - {T.CODE}
    assert compare("return 1", "return 1", T.CODE).equal is None


@pytest.mark.pins("Math-Verify#50")
@pytest.mark.pins("Math-Verify#55")
@pytest.mark.pins("trl#5281")
@pytest.mark.pins("verl#3407")
def test_eight_threads_grade_as_the_main_thread_does():
    cases = [case for case in EQUAL + DIFFERENT if case[0] is T.EXPRESSION] * 2
    alone = [compare(first, second, kind) for kind, first, second in cases]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda case: compare(case[1], case[2], case[0]), cases))
    assert together == alone
    assert any(verdict.tier is Tier.SYMBOLIC for verdict in together)
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.anyio
async def test_a_task_grades_off_the_main_thread(anyio_backend: str):
    verdict = await anyio.to_thread.run_sync(compare, r"\sqrt{8}", r"2\sqrt{2}", T.EXPRESSION)
    assert verdict.equal is True


@pytest.mark.pins("Math-Verify#65")
@pytest.mark.parametrize(
    ("first", "second"),
    [("10^(10^(10^10))", "9^(9^(9^9))"), ("2^{2^{2^{2^{2}}}}", "2^{2^{2^{2^{3}}}}"), ("9^{9^{9^{9}}}x", "x")],
)
def test_power_towers_end_in_time_and_never_pass(first: str, second: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare_module, "SYMBOLIC_CPU_S", 2)
    assert compare(r"\sqrt{8}", r"2\sqrt{2}", T.EXPRESSION).equal is True  # the worker is up
    process, started_s = os.getpid(), time.monotonic()
    verdict = compare(first, second, T.EXPRESSION)
    assert verdict.equal is not True
    assert time.monotonic() - started_s < compare_module.SYMBOLIC_S / 2
    assert os.getpid() == process
    assert compare(r"\sqrt{8}", r"2\sqrt{2}", T.EXPRESSION).equal is True


def test_a_tier_that_times_out_or_dies_cannot_tell():
    def slow(first: str, second: str) -> bool | None:
        raise WorkerTimeout("no answer within 5 s")

    def dead(first: str, second: str) -> bool | None:
        raise WorkerFailed("the worker process died", "died")

    for tier in (slow, dead):
        verdict = compare("x+1", "1+x", T.EXPRESSION, tier)
        assert verdict.equal is None
        assert "x+1" in verdict.reason
    assert compare("(x+1, 2)", "(1+x, 3)", T.EXPRESSION, slow).equal is False
    assert compare("(x+1, 2)", "(1+x, 2)", T.EXPRESSION, slow).equal is None


def test_a_hanging_symbolic_worker_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch):
    hanging = Worker("time:sleep")
    monkeypatch.setattr(compare_module, "_workers", [hanging])
    monkeypatch.setattr(compare_module, "symbolic_tier", lambda a, b: hanging.call(60, timeout_s=0.2))
    assert compare("x+1", "1+x", T.EXPRESSION).equal is None
    assert hanging.pid is None


def test_without_the_package_the_verdict_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compare_module, "has_symbolic_tier", lambda: False)
    verdict = compare("x+1", "1+x", T.EXPRESSION)
    assert verdict.equal is None
    assert "branchwise[evals]" in verdict.reason
    assert compare("1/2", "0.5", T.EXPRESSION).equal is True
    assert compare("1/2", "0.6", T.EXPRESSION).equal is False


def test_letters_of_choices():
    letters = {
        "(b)": "B",
        "C": "C",
        "D. four": "D",
        "E) 5": "E",
        "A good idea": None,
        "Apple": None,
        "12": None,
        "": None,
    }
    assert {text: choice_letter(text) for text in letters} == letters


def never(first: str, second: str) -> bool | None:
    return None


answers = st.text(alphabet="0123xy+-*/(){}[],.=<>\\ %", max_size=16) | st.sampled_from(
    [text for _, *pair in EQUAL + DIFFERENT for text in pair]
)


@given(answers, answers, st.sampled_from(sorted(set(AnswerType) - {T.CODE})))
def test_comparison_is_symmetric_and_reflexive(first: str, second: str, kind: AnswerType):
    assert compare(first, second, kind, never).equal == compare(second, first, kind, never).equal
    assert compare(first, first, kind, never).equal == compare(first, f" {first} ", kind, never).equal


numbers = st.integers(-9, 9).filter(bool)


@st.composite
def formula(draw: st.DrawFn) -> tuple[str, str, str]:
    """A formula, the same one written otherwise, and another one."""
    a, b, c = draw(numbers), draw(numbers), draw(st.integers(2, 9))
    x = draw(st.sampled_from(["x", "y", r"\theta"]))
    first = rf"\frac{{{a}{x}+({b})}}{{{c}}}+\sqrt{{{c}}}"
    return first, rf"sqrt({c})+\frac{{{b}}}{{{c}}}+({a})*{x}/{c}", first.replace(f"+({b})", f"+({b + 1})")


@settings(max_examples=15)
@given(formula())
def test_formulas_written_otherwise_are_equal_and_others_are_not(formulas: tuple[str, str, str]):
    first, same, other = formulas
    assert compare(first, same, T.EXPRESSION) == Verdict(True, Tier.SYMBOLIC)
    assert compare(same, first, T.EXPRESSION).equal is True
    assert compare(other, first, T.EXPRESSION).equal is False
    assert compare(same, other, T.EXPRESSION).equal is False
