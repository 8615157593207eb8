"""Which leaves of a tree of steps to keep, where a step that stays holds KV: the integer program of ETS."""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import msgspec
import numpy as np

from ..engine.errors import BranchwiseError, UsageError

GRAMS = (1, 2)
"""Lengths of the token n-grams that embed a step."""

DIMENSIONS = 512

PREFERENCE = 1e-6
"""What a leaf loses for each leaf that stands before it: equals are decided for the lower branch id, not by
the solver's order."""


class Twig(msgspec.Struct, frozen=True):
    """A leaf as the program sees it: its share of the next widths, and the nodes on its path, which it may
    share with other leaves, its own step among them."""

    share: float
    path: tuple[str, ...]


class Tradeoff(msgspec.Struct, frozen=True, kw_only=True):
    """The prices: `lambda_c` for all KV tokens of the tree, `lambda_s` for all clusters."""

    lambda_c: float
    lambda_s: float


def check_solver() -> None:
    """Raises `UsageError` where the solver is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise UsageError(
            "strategy ets needs scipy, which is not installed: pip install 'branchwise[evals]', "
            "or use rebase, which needs none"
        )


def unique_tokens(twigs: Iterable[Twig], tokens: Mapping[str, int]) -> int:
    """KV tokens of these paths, each node once."""
    return sum(tokens[node] for node in {node for twig in twigs for node in twig.path})


def objective(
    kept: Sequence[bool],
    twigs: Sequence[Twig],
    tokens: Mapping[str, int],
    clusters: Sequence[int],
    tradeoff: Tradeoff,
) -> float:
    """What keeping these leaves is worth (Hooper et al. 2025, arXiv 2502.13575, eq. 3, with the tokens of a
    node as its cost).

    sum of shares - lambda_c * KV tokens kept / KV tokens of all + lambda_s * clusters kept / clusters.
    `tokens` are the unique KV tokens of each node, `clusters` the cluster of each leaf, from 0.
    """
    chosen = [index for index, keep in enumerate(kept) if keep]
    kv = unique_tokens([twigs[index] for index in chosen], tokens) / max(1, sum(tokens.values()))
    covered = len({clusters[index] for index in chosen}) / len(set(clusters))
    shares = sum(twigs[index].share for index in chosen)
    return shares - tradeoff.lambda_c * kv + tradeoff.lambda_s * covered


def best_subset(
    twigs: Sequence[Twig], tokens: Mapping[str, int], clusters: Sequence[int], tradeoff: Tradeoff
) -> list[bool]:
    """For each leaf whether it stays, so that `objective` is greatest and at least one stays.

    A node stays where a leaf below it does; a cluster is covered where one of its leaves stays. Equals, and
    what differs by less than `PREFERENCE` for each leaf, go to the first leaves.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    nodes = {node: index for index, node in enumerate(sorted({n for twig in twigs for n in twig.path}))}
    groups = sorted(set(clusters))
    x = range(len(twigs))
    y = range(x.stop, x.stop + len(nodes))
    cov = range(y.stop, y.stop + len(groups))

    all_tokens = max(1, sum(tokens.values()))
    gain = [twig.share - PREFERENCE * index for index, twig in enumerate(twigs)]
    gain += [-tradeoff.lambda_c * tokens[node] / all_tokens for node in nodes]
    gain += [tradeoff.lambda_s / len(groups)] * len(groups)

    rows: list[dict[int, float]] = [dict.fromkeys(x, 1.0)]  # sum x_i >= 1
    rows += [{y[nodes[node]]: 1.0, i: -1.0} for i in x for node in twigs[i].path]  # y_v >= x_i
    for k, group in zip(cov, groups, strict=True):  # sum of the cluster's x_i >= cov_k
        rows.append({k: -1.0} | {i: 1.0 for i in x if clusters[i] == group})
    entries = [(value, row, column) for row, terms in enumerate(rows) for column, value in terms.items()]
    values, row_of, column_of = zip(*entries, strict=True)

    solved = milp(
        -np.array(gain),
        constraints=LinearConstraint(
            coo_array((values, (row_of, column_of)), shape=(len(rows), len(gain))).tocsc(),
            lb=np.array([1.0] + [0.0] * (len(rows) - 1)),  # pyright: ignore[reportArgumentType]
        ),
        bounds=Bounds(0.0, 1.0),
        integrality=np.array([1] * len(x) + [0] * (len(gain) - len(x))),  # y and cov are whole where x is
        options={"mip_rel_gap": 0.0},
    )
    if solved.x is None:
        raise BranchwiseError(f"no choice among {len(twigs)} leaves was found: {solved.message}")
    return [bool(value > 0.5) for value in solved.x[: x.stop]]


def embed_step(tokens: Sequence[int]) -> np.ndarray:
    """Counts of the step's token n-grams, hashed into `DIMENSIONS`.

    A stand-in for the paper's sentence embeddings: it needs no second model and depends on the tokens alone,
    but it sees equal wording only, not equal meaning.
    """
    vector = np.zeros(DIMENSIONS)
    for size in GRAMS:
        for start in range(len(tokens) - size + 1):
            gram = ",".join(map(str, tokens[start : start + size]))
            vector[crc32(gram.encode()) % DIMENSIONS] += 1.0
    if not tokens:
        vector[0] = 1.0
    return vector


def cluster_steps(steps: Sequence[Sequence[int]], distance: float) -> list[int]:
    """The cluster of each step, numbered from 0 by first member: average linkage of the cosine distances,
    cut at `distance`."""
    if len(steps) == 1:
        return [0]
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    apart = np.clip(pdist(np.stack([embed_step(step) for step in steps]), "cosine"), 0.0, None)
    labels = fcluster(linkage(apart, "average"), distance, "distance")
    numbers: dict[int, int] = {}
    return [numbers.setdefault(int(label), len(numbers)) for label in labels]
