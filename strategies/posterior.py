"""How sure the votes so far make their leader: the stop criteria of adaptive consistency (Aggarwal et al.
2023, arXiv 2305.11860), in closed form."""

import math
from collections.abc import Sequence
from fractions import Fraction
from math import comb, factorial

DIRICHLET_CLASSES = 5
"""Classes that the Dirichlet criterion looks at, those with the most votes (as the published code does)."""


def beta_confidence(most: int, second: int) -> float:
    """P(p > 1/2) for p ~ Beta(most + 1, second + 1): that the leader beats the runner-up, of whose votes
    alone it is the larger share."""
    votes = most + second + 1
    return sum(comb(votes, i) for i in range(most + 1)) / 2**votes


def dirichlet_confidence(counts: Sequence[int]) -> float:
    """P(p_1 is the largest) for p ~ Dirichlet(counts + 1), `counts` the largest first: that the leader beats
    all others. Of two classes this is `beta_confidence`.

    Exact: p_1 is the largest where X_1 is, for X_i ~ Gamma(counts_i + 1), whose distribution functions for
    whole parameters are 1 - exp(-x) * polynomial.
    """
    most, *others = counts[:DIRICHLET_CLASSES]
    terms: dict[int, list[Fraction]] = {0: [Fraction(1)]}
    """By k, the polynomial that goes with exp(-k x)."""
    for count in others or [0]:
        tail = [Fraction(1, factorial(power)) for power in range(count + 1)]
        grown = {k: list(polynomial) for k, polynomial in terms.items()}
        for k, polynomial in terms.items():
            grown[k + 1] = _sum(grown.get(k + 1, []), _product(polynomial, tail), sign=-1)
        terms = grown
    total = sum(
        coefficient * Fraction(factorial(most + power), factorial(most) * (k + 1) ** (most + power + 1))
        for k, polynomial in terms.items()
        for power, coefficient in enumerate(polynomial)
    )
    return float(total)


def normalised_entropy(counts: Sequence[int]) -> float:
    """Entropy of the shares over its largest value, from 0 to 1. One class alone is measured against one vote
    for another, as the published code does."""
    counts = [*counts, 1] if len(counts) < 2 else counts
    total = sum(counts)
    entropy = -sum(count / total * math.log(count / total) for count in counts)
    return entropy / math.log(len(counts))


def _product(first: Sequence[Fraction], second: Sequence[Fraction]) -> list[Fraction]:
    product = [Fraction(0)] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            product[i + j] += a * b
    return product


def _sum(first: Sequence[Fraction], second: Sequence[Fraction], *, sign: int) -> list[Fraction]:
    length = max(len(first), len(second))
    padded = ([*part, *[Fraction(0)] * (length - len(part))] for part in (first, second))
    return [a + sign * b for a, b in zip(*padded, strict=True)]
