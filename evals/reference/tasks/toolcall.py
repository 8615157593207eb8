"""Calculator calls: the model copies the expression into a call, the harness appends the result.

A trace is `<call>37*45+12</call><result>1677</result></think>1677<eos>`; the result tokens carry no loss,
because the harness writes them.
"""

import random
import re

import msgspec

from ..vocabulary import CALL, CALL_END, EOS, RESULT, RESULT_END, THINK_END
from .arithmetic_terms import Term, Terms, evaluate, parse_terms, write_terms
from .trace import OutOfRangeError, Span, Split, Trace, in_split

COUNTS = (2, 3, 4)
NUMBER_MAX = 999
FACTORS_MAX = 2
PRODUCT_SHARE = 0.4
TASK_MARK = "T"

_SENTENCE = re.compile(r"\s*(?:use|using)\s+the\s+calculator\s*[:,]?\s*(.*?)[\s=?.!]*", re.IGNORECASE)


class Instance(msgspec.Struct, frozen=True):
    """A calculator problem: the expression without spaces."""

    expression: str


def recognise(text: str) -> Instance | None:
    """Read "Use the calculator: 37*45 + 12"; None where the text is no such sentence."""
    match = _SENTENCE.fullmatch(text)
    if match is None:
        return None
    expression = match[1].replace(" ", "")
    terms = parse_terms(expression)
    if terms is None or expression[0] in "+-":
        raise OutOfRangeError(f"The calculator task takes whole numbers joined by + - *, got {match[1]!r}")
    numbers = [factor for term in terms for factor in term.factors]
    if not COUNTS[0] <= len(numbers) <= COUNTS[-1] or not all(
        1 <= number <= NUMBER_MAX for number in numbers
    ):
        limits = f"{COUNTS[0]} to {COUNTS[-1]} numbers from 1 to {NUMBER_MAX}"
        raise OutOfRangeError(f"The calculator task takes {limits}, got {expression}")
    return Instance(write_terms(terms))


def prompt(instance: Instance) -> str:
    """The model's compact prompt, for example `T37*45+12:`."""
    return f"{TASK_MARK}{instance.expression}:"


def sentence(instance: Instance) -> str:
    """The human sentence of an instance; `recognise` reads it back."""
    return "Use the calculator: " + re.sub(r"([+-])", r" \1 ", instance.expression)


def call_result(expression: str) -> int | None:
    """What the calculator answers to a call; None where the expression is not one it reads."""
    terms = parse_terms(expression)
    return None if terms is None else evaluate(terms)


def result_text(value: int) -> str:
    """What the harness appends after a call."""
    return f"{RESULT}{value}{RESULT_END}"


def generate(rng: random.Random, split: Split | None) -> Instance:
    """Draw an instance of 2 to 4 numbers."""
    while True:
        instance = Instance(write_terms(_draw_terms(rng, rng.choice(COUNTS))))
        if in_split("toolcall:" + instance.expression, split):
            return instance


def _draw_number(rng: random.Random) -> int:
    return rng.randrange(10 ** rng.randrange(3), 1000) if rng.random() < 0.5 else rng.randint(1, 99)


def _draw_terms(rng: random.Random, count: int) -> Terms:
    terms = [Term(1, (_draw_number(rng),))]
    for _ in range(count - 1):
        sign, factors = terms[-1]
        if len(factors) < FACTORS_MAX and rng.random() < PRODUCT_SHARE:
            terms[-1] = Term(sign, (*factors, _draw_number(rng)))
        else:
            terms.append(Term(rng.choice((1, -1)), (_draw_number(rng),)))
    return tuple(terms)


def generate_trace(rng: random.Random, split: Split | None) -> tuple[Instance, Trace]:
    """Draw an instance with its training trace."""
    instance = generate(rng, split)
    value = call_result(instance.expression)
    assert value is not None
    call = Span(f"{CALL}{instance.expression}{CALL_END}")
    answer = Span(f"{THINK_END}{value}{EOS}")
    return instance, Trace(prompt(instance), (call, Span(result_text(value), trained=False), answer))
