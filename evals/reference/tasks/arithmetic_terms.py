"""Arithmetic expressions as signed products: parsing, writing, and the legal single steps on them.

An expression is a tuple of terms, a term a sign and its factors. A step multiplies any two factors of one
term or adds any two terms that are single numbers; the result takes the place of the first. A product never
leaves its term's sign, so `12-7*3` steps to `12-21` by `7*3=21`.
"""

import itertools
import math
import random
import re
from typing import NamedTuple

_TERM = re.compile(r"([+-]?)(\d+(?:\*\d+)*)")


class Term(NamedTuple):
    """A signed product; `sign` is 1 or -1 and `factors` are not negative."""

    sign: int
    factors: tuple[int, ...]

    @property
    def value(self) -> int:
        """The term's value with its sign."""
        return self.sign * math.prod(self.factors)


Terms = tuple[Term, ...]


class Combination(NamedTuple):
    """One step: the text left of `=`, its result, and the expression that remains."""

    operation: str
    result: int
    remaining: Terms

    def write(self) -> str:
        """The thinking step, with its mark."""
        return f"{self.operation}={self.result}>{write_terms(self.remaining)};"


def single(value: int) -> Term:
    """A number as a term."""
    return Term(1 if value >= 0 else -1, (abs(value),))


def parse_terms(text: str) -> Terms | None:
    """Terms of an expression text; None where it is not a sum of signed products of whole numbers."""
    terms = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (position > 0 and not match[1]):
            return None
        terms.append(Term(-1 if match[1] == "-" else 1, tuple(map(int, match[2].split("*")))))
        position = match.end()
    return tuple(terms) or None


def write_terms(terms: Terms) -> str:
    """The expression text; the first term carries no plus sign."""
    text = "".join(("-" if term.sign < 0 else "+") + "*".join(map(str, term.factors)) for term in terms)
    return text.removeprefix("+")


def evaluate(terms: Terms) -> int:
    """The expression's value by standard precedence."""
    return sum(term.value for term in terms)


def _sites(terms: Terms) -> list[tuple[int, int, int, int]]:
    """Where a step may act, as (term, factor, term, factor) pairs."""
    inside = [
        (index, first, index, second)
        for index, term in enumerate(terms)
        if len(term.factors) > 1
        for first, second in itertools.combinations(range(len(term.factors)), 2)
    ]
    singles = [index for index, term in enumerate(terms) if len(term.factors) == 1]
    return inside + [(first, 0, second, 0) for first, second in itertools.combinations(singles, 2)]


def _combine(terms: Terms, site: tuple[int, int, int, int], error: int = 0) -> Combination:
    term_index, first, other_index, second = site
    if term_index == other_index:
        sign, factors = terms[term_index]
        result = factors[first] * factors[second] + error
        kept = (*factors[:first], result, *factors[first + 1 : second], *factors[second + 1 :])
        remaining = (*terms[:term_index], Term(sign, kept), *terms[term_index + 1 :])
        return Combination(f"{factors[first]}*{factors[second]}", result, remaining)
    pair = (terms[term_index], terms[other_index])
    result = pair[0].value + pair[1].value + error
    between = terms[term_index + 1 : other_index]
    remaining = (*terms[:term_index], single(result), *between, *terms[other_index + 1 :])
    return Combination(write_terms(pair), result, remaining)


def combinations(terms: Terms) -> list[Combination]:
    """Every legal step on an expression."""
    return [_combine(terms, site) for site in _sites(terms)]


def draw_combination(rng: random.Random, terms: Terms, error: int = 0) -> Combination:
    """A uniformly random step; `error` is added to its result (not legal where it is not 0)."""
    return _combine(terms, rng.choice(_sites(terms)), error)


def is_solved(terms: Terms) -> bool:
    """Whether one number remains."""
    return len(terms) == 1 and len(terms[0].factors) == 1
