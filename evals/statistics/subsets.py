"""What k samples would have given, estimated without bias from n >= k recorded ones.

For exchangeable samples only: drawn independently from one distribution, none cut by a shared limit.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

EXACT_SUBSETS = 1000
"""All subsets are taken where there are no more than this."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, c of them right, hold a right one (Chen et al. 2021, arXiv
    2107.03374).

    `1 - C(n-c, k) / C(n, k)`, a quotient of integers. nan for k > n: not known from n samples,
    whatever c is. Raises `ValueError` unless 0 <= c <= n and k >= 1.
    """
    _check(n, c, k)
    if k > n:
        return math.nan
    return (math.comb(n, k) - math.comb(n - c, k)) / math.comb(n, k)


def all_right_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, c of them right, are all right: pass^k (tau-bench, arXiv 2406.12045).

    `C(c, k) / C(n, k)`; nan for k > n.
    """
    _check(n, c, k)
    return math.nan if k > n else math.comb(c, k) / math.comb(n, k)


def mean_over_subsets(
    n: int,
    k: int,
    value: Callable[[Sequence[int]], float],
    *,
    seed: int = 0,
    subsets: int = EXACT_SUBSETS,
) -> float:
    """Mean of `value(indices)` over the k-subsets of n samples, indices in ascending order.

    Exact where there are at most `subsets` of them, else over so many seeded random ones. This is how votes
    of k samples are estimated: the first k of a list are one draw only. nan for k > n.
    """
    if k < 1:
        raise ValueError(f"k={k}: give 1 or more")
    if k > n:
        return math.nan
    if math.comb(n, k) <= subsets:
        return math.fsum(map(value, itertools.combinations(range(n), k))) / math.comb(n, k)
    rng = np.random.default_rng(seed)
    draws = (sorted(rng.choice(n, k, replace=False).tolist()) for _ in range(subsets))
    return math.fsum(map(value, draws)) / subsets


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n}, c={c}, k={k}: give 0 <= c <= n and k of 1 or more")
