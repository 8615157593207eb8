"""Asking for speculation: run-wide, per branch, and of a back end that cannot."""

import anyio
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.greedy import Greedy
from support.searching import Samples, outside_engine, scripted, solve

PROBLEM = "12 + 7*3 - 5*2 + 4"


class OneBranch(Strategy, tag="one_branch", kw_only=True, frozen=True):
    """Extends the root with a speculation of its own."""

    speculate: str | None

    async def run(self, search: Search) -> None:
        await search.root.extend(Until.ANSWER, speculate=self.speculate)
        search.offer(search.root)


def solve_reference(strategy, **options):
    async def main():
        async with Reasoner.open("reference") as reasoner:
            return await reasoner.solve(PROBLEM, strategy, Budget(tokens=160), seed=3, **options)

    return anyio.run(main)


@pytest.mark.parametrize("speculate", ["ngram(k=4)", "suffix(k=8)"])
def test_the_shipped_policy_writes_the_same_with_drafts(speculate):
    for strategy in (Greedy(), BestOfN(n=3)):
        plain = solve_reference(strategy)
        drafted = solve_reference(strategy, speculate=speculate)
        assert outside_engine(drafted) == outside_engine(plain)
        assert drafted.usage.engine["draft_tokens"] > 0


def test_a_branch_may_speculate_by_itself():
    plain, drafted = (solve_reference(OneBranch(speculate=text)) for text in (None, "ngram(k=3)"))
    assert outside_engine(drafted)["text"] == outside_engine(plain)["text"]
    assert plain.usage.engine["draft_tokens"] == 0
    assert drafted.usage.engine["draft_tokens"] > 0


def test_a_back_end_that_cannot_is_refused_in_one_line():
    with pytest.raises(CapabilityError) as caught:
        solve(scripted(), Samples(n=2), speculate="ngram(k=4)")
    assert str(caught.value) == "speculate='ngram(k=4)': this engine drafts no tokens; leave it out"


def test_an_unknown_method_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match="give one of ngram"):
        solve(scripted(), Samples(n=2), speculate="medusa")
