"""Efficient tree search: reward-balanced search that keeps the leaves worth their KV."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from .base import Branch, Needs, Search
from .growth import Growth, Leaf, path_of
from .kv_selection import Tradeoff, Twig, best_subset, check_solver, cluster_steps, unique_tokens
from .rebase import Rebase

Price = Annotated[float, Meta(ge=0.0, le=1000.0)]


class Ets(Rebase, tag="ets", kw_only=True, frozen=True):
    """Efficient tree search: REBASE over the leaves worth their KV (Hooper et al. 2025, arXiv 2502.13575).

    At each depth the leaves that go on are those of the subset S that maximises

        sum_S O_i  -  lambda_c * KV tokens of S / KV tokens of all  +  lambda_s * clusters in S / clusters

    with at least one leaf in it. O_i is the leaf's share of the widths that `rebase` would deal out; the KV
    of a subset is every token on its paths once, so that a leaf beside a kept one costs its own step alone
    (the paper counts each step as 1). Clusters are steps that say the same: average linkage over the cosine
    distances of the embedded steps, cut at `distance`. The other leaves are pruned, and REBASE shares `width`
    over those kept. All else is as in `rebase`.

    Steps are embedded by their token n-grams, a stand-in for the paper's sentence encoder, where `distance`
    is .05. Here the default is .3: of the reference policy's steps, 95 % of the pairs that come to the same
    numbers lie below .31, 95 % of those that do not lie above .28.
    """

    lambda_c: Price = 1.0
    lambda_s: Price = 1.4
    distance: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.3

    def keep(self, search: Search, growth: Growth, leaves: Sequence[Leaf], width: int) -> Sequence[Leaf]:
        """The leaves worth their KV; the others are pruned."""
        kept = self.worth_their_kv(search, leaves, width) if width else leaves
        growth.prune_all((leaf for leaf in leaves if leaf not in kept), "kv: not worth its tokens")
        return kept

    def worth_their_kv(self, search: Search, leaves: Sequence[Leaf], width: int) -> list[Leaf]:
        """The leaves of the best subset, in their order; `leaves` the best first, as REBASE takes them."""
        if not leaves:
            return []
        widths = self.widths(leaves, width)
        share_of = {leaf: dealt / sum(widths) for leaf, dealt in zip(leaves, widths, strict=True)}
        ordered = sorted(leaves, key=lambda leaf: path_of(leaf.branch))
        paths = [kv_of(leaf.branch, search.root) for leaf in ordered]
        tokens = {node: count for path in paths for node, count in path.items()}
        twigs = [Twig(share_of[leaf], tuple(path)) for leaf, path in zip(ordered, paths, strict=True)]
        clusters = cluster_steps([own_tokens(leaf.branch) for leaf in ordered], self.distance)
        tradeoff = Tradeoff(lambda_c=self.lambda_c, lambda_s=self.lambda_s)
        chosen = best_subset(twigs, tokens, clusters, tradeoff)
        search.note(
            "ets: selected",
            kept=[leaf.branch.id for leaf, keep in zip(ordered, chosen, strict=True) if keep],
            leaves=len(leaves),
            clusters=len(set(clusters)),
            kv_tokens=unique_tokens((twig for twig, keep in zip(twigs, chosen, strict=True) if keep), tokens),
            kv_tokens_of_all=sum(tokens.values()),
        )
        kept = {leaf for leaf, keep in zip(ordered, chosen, strict=True) if keep}
        return [leaf for leaf in leaves if leaf in kept]

    def requirements(self) -> Needs:
        check_solver()
        return super().requirements()


def kv_of(branch: Branch, root: Branch) -> dict[str, int]:
    """The KV tokens of each node on a branch's path below the root, by the id of the branch that made it."""
    nodes: dict[str, int] = {}
    here: Branch | None = branch
    while here is not None and here.id != root.id:
        nodes[here.id] = len(own_tokens(here))
        here = here.parent
    return nodes


def own_tokens(branch: Branch) -> Sequence[int]:
    """What the branch has behind its parent."""
    return branch.tokens[0 if branch.parent is None else len(branch.parent.tokens) :]
