"""Arithmetic: sums and products of small numbers by standard precedence, one operation per thinking step.

A thinking step is `a*b=c>remaining expression;`. Any two combinable terms may be combined, in any order,
so many paths lead to one answer. The answer is the number.
"""

import math
import random
import re

import msgspec

from .arithmetic_terms import (
    Combination,
    Term,
    Terms,
    draw_combination,
    evaluate,
    is_solved,
    parse_terms,
    write_terms,
)
from .trace import (
    SLIPS,
    OutOfRangeError,
    Span,
    Split,
    Trace,
    TraceKind,
    cut_spans,
    draw_kind,
    in_split,
    plain_spans,
    restart_spans,
)

COUNTS = (2, 3, 4, 5, 6)
COUNT_WEIGHTS = (1, 1, 3, 3, 3)
NUMBER_MAX = 30
PRODUCT_MAX = 999
FACTORS_MAX = 3
PRODUCT_SHARE = 0.35
TASK_MARK = "A"

_QUESTION = re.compile(
    r"\s*(?:what(?:\s+is|'s)|compute|calculate|evaluate)?[\s:]*(.*?)[\s=?.!]*", re.IGNORECASE
)
DIGITS_MAX = 12
_EXPRESSION = re.compile(r"[-+(]*\d[\d+\-*/^%().]*")
_SIGNS = str.maketrans(
    {"\N{MULTIPLICATION SIGN}": "*", "\N{MIDDLE DOT}": "*", "\N{MINUS SIGN}": "-", " ": ""}
)


class Instance(msgspec.Struct, frozen=True):
    """An arithmetic problem: the expression without spaces, for example `12+7*3-5`."""

    expression: str

    @property
    def terms(self) -> Terms:
        """The expression as signed products."""
        terms = parse_terms(self.expression)
        if terms is None:
            raise ValueError(f"not an arithmetic expression: {self.expression!r}")
        return terms

    @property
    def num_numbers(self) -> int:
        """How many numbers the expression holds."""
        return sum(len(term.factors) for term in self.terms)


def recognise(text: str) -> Instance | None:
    """Read "12 + 7*3 - 5", "What is 12 + 7*3 - 5?" and the like; None where the text is no such expression.

    Raises `OutOfRangeError` where it is one that the models were not trained on.
    """
    match = _QUESTION.fullmatch(text)
    expression = match[1].translate(_SIGNS) if match else ""
    if not _EXPRESSION.fullmatch(expression) or expression.lstrip("+-").isdigit():
        return None
    if re.search(r"\d\s+\d", text):
        raise OutOfRangeError(f"Arithmetic takes an operator between two numbers, got {text.strip()!r}")
    longest = max(map(len, re.findall(r"\d+", expression)))
    if longest > DIGITS_MAX:
        raise OutOfRangeError(f"Arithmetic takes numbers from 1 to {NUMBER_MAX}, got one of {longest} digits")
    terms = parse_terms(expression)
    if terms is None or expression[0] in "+-":
        raise OutOfRangeError(f"Arithmetic takes whole numbers joined by + - *, got {expression!r}")
    _check_range(terms)
    return Instance(write_terms(terms))


def _check_range(terms: Terms) -> None:
    numbers = [factor for term in terms for factor in term.factors]
    if not COUNTS[0] <= len(numbers) <= COUNTS[-1]:
        raise OutOfRangeError(f"Arithmetic takes {COUNTS[0]} to {COUNTS[-1]} numbers, got {len(numbers)}")
    for number in numbers:
        if not 1 <= number <= NUMBER_MAX:
            raise OutOfRangeError(f"Arithmetic takes numbers from 1 to {NUMBER_MAX}, got {number}")
    for term in terms:
        if len(term.factors) > FACTORS_MAX or abs(term.value) > PRODUCT_MAX:
            product = write_terms((Term(1, term.factors),))
            limits = f"{FACTORS_MAX} factors and a value of {PRODUCT_MAX}"
            raise OutOfRangeError(f"Arithmetic takes products of at most {limits}, got {product}")


def prompt(instance: Instance) -> str:
    """The model's compact prompt, for example `A12+7*3-5:`."""
    return f"{TASK_MARK}{instance.expression}:"


def sentence(instance: Instance) -> str:
    """The human sentence of an instance; `recognise` reads it back."""
    return re.sub(r"([+-])", r" \1 ", instance.expression)


def is_held_out(instance: Instance) -> bool:
    """Whether the expression's text is held out of training."""
    return _in_split(instance.expression, Split.HELD_OUT)


def _in_split(expression: str, split: Split | None) -> bool:
    return in_split("arithmetic:" + expression, split)


def true_value(instance: Instance) -> int:
    """The right answer; this is the gold answer, so no sound verifier may call it."""
    return evaluate(instance.terms)


def generate(rng: random.Random, split: Split | None, count: int | None = None) -> Instance:
    """Draw an instance of `count` numbers (random 2 to 6 where None)."""
    drawn = count if count is not None else rng.choices(COUNTS, COUNT_WEIGHTS)[0]
    while True:
        instance = Instance(write_terms(_draw_terms(rng, drawn)))
        if _in_split(instance.expression, split):
            return instance


def _draw_terms(rng: random.Random, count: int) -> Terms:
    terms = [Term(1, (rng.randint(1, NUMBER_MAX),))]
    for _ in range(count - 1):
        number = rng.randint(1, NUMBER_MAX)
        sign, factors = terms[-1]
        fits = len(factors) < FACTORS_MAX and math.prod(factors) * number <= PRODUCT_MAX
        if fits and rng.random() < PRODUCT_SHARE:
            terms[-1] = Term(sign, (*factors, number))
        else:
            terms.append(Term(rng.choice((1, -1)), (number,)))
    return tuple(terms)


def generate_trace(
    rng: random.Random, split: Split | None, count: int | None = None
) -> tuple[Instance, Trace]:
    """Draw an instance with a training trace that solves it."""
    instance = generate(rng, split, count)
    return instance, Trace(prompt(instance), _spans(rng, instance.terms, draw_kind(rng.random())))


def draw_steps(rng: random.Random, terms: Terms) -> list[str]:
    """The thinking steps of a uniformly random legal path to the answer."""
    steps = []
    while not is_solved(terms):
        combination = draw_combination(rng, terms)
        steps.append(combination.write())
        terms = combination.remaining
    return steps


def _spans(rng: random.Random, terms: Terms, kind: TraceKind) -> tuple[Span, ...]:
    steps = draw_steps(rng, terms)
    answer = str(evaluate(terms))
    if kind is TraceKind.CUT:
        return cut_spans(steps, rng.randrange(len(steps)), answer)
    if kind is TraceKind.RESTART:
        return restart_spans(_failed_branch(rng, terms, rng.randrange(len(steps))), steps, answer)
    return plain_spans(steps, answer)


def _failed_branch(rng: random.Random, terms: Terms, legal_steps: int) -> list[str]:
    """Legal steps, then one with a wrong result."""
    steps = []
    for _ in range(legal_steps):
        combination = draw_combination(rng, terms)
        steps.append(combination.write())
        terms = combination.remaining
    steps.append(draw_wrong_step(rng, terms).write())
    return steps


def draw_wrong_step(rng: random.Random, terms: Terms) -> Combination:
    """A step on the right operands whose result is wrong by a digit or two, as a model's slips are."""
    while True:
        error = rng.choice((-1, 1)) * rng.choice(SLIPS)
        combination = draw_combination(rng, terms, error)
        if "*" not in combination.operation or combination.result >= 0:
            return combination
