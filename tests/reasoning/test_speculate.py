"""Asking for speculation: run-wide, per branch, and of a back end that cannot."""

import anyio
import pytest
from branchwise.engine.drafting.cost import VerifyCost
from branchwise.engine.engine import Engine
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.engine.text.stop import Until
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.strategies.base import Search, Strategy
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.greedy import Greedy
from support.drafters import Untimed
from support.searching import Samples, outside_engine, scripted, solve

PROBLEM = "12 + 7*3 - 5*2 + 4"


class OneBranch(Strategy, tag="one_branch", kw_only=True, frozen=True):
    """Extends the root with a speculation of its own."""

    speculate: str | None

    async def run(self, search: Search) -> None:
        await search.root.extend(Until.ANSWER, speculate=self.speculate)
        search.offer(search.root)


def on_reference(*asked):
    """The solutions of (strategy, speculate) pairs by the shipped policy, one after the other."""

    async def main():
        async with Reasoner.open("reference") as reasoner:
            assert isinstance(reasoner.backend, Engine)
            speculation = reasoner.backend.scheduler.speculation
            # A draft model as slow as its target, which this one is, would soon be left alone.
            speculation.costs = {name: Untimed(VerifyCost(30.0)) for name in speculation.costs}
            return [
                await reasoner.solve(PROBLEM, strategy, Budget(tokens=160), seed=3, speculate=speculate)
                for strategy, speculate in asked
            ]

    return anyio.run(main)


@pytest.mark.parametrize("strategy", [Greedy(), BestOfN(n=3)], ids=["greedy", "best_of_n"])
def test_the_shipped_policy_writes_the_same_with_drafts(strategy):
    methods = [
        None,
        "ngram(k=4)",
        "suffix(k=8)",
        "suffix(k=8, width=2)",
        "draft(k=4)",
        "draft(k=4, width=2)",
    ]
    plain, *drafted = on_reference(*((strategy, method) for method in methods))
    for one in drafted:
        assert outside_engine(one) == outside_engine(plain)
        assert one.usage.engine["draft_tokens"] > 0


@pytest.mark.parametrize(
    "method", ["ngram(k=4, verify=ratio)", "suffix(verify=ratio)", "draft(k=4, verify=ratio)"]
)
def test_under_the_ratio_test_a_seed_still_gives_one_result(method):
    first, second = on_reference((BestOfN(n=3), method), (BestOfN(n=3), method))
    assert outside_engine(first) == outside_engine(second)
    assert first.usage.engine["draft_tokens"] > 0


def test_greedy_texts_are_the_same_under_the_ratio_test():
    plain, drafted = on_reference((Greedy(), None), (Greedy(), "draft(k=4, verify=ratio)"))
    assert plain.text == drafted.text
    assert drafted.usage.engine["draft_tokens"] > 0


def test_a_branch_may_speculate_by_itself():
    plain, drafted = on_reference(
        (OneBranch(speculate=None), None), (OneBranch(speculate="ngram(k=3)"), None)
    )
    assert plain.text == drafted.text
    assert plain.usage.engine["draft_tokens"] == 0
    assert drafted.usage.engine["draft_tokens"] > 0


def test_a_back_end_that_cannot_is_refused_in_one_line():
    with pytest.raises(CapabilityError) as caught:
        solve(scripted(), Samples(n=2), speculate="ngram(k=4)")
    assert str(caught.value) == "speculate='ngram(k=4)': this engine drafts no tokens; leave it out"


def test_a_draft_model_that_is_not_open_is_refused_in_one_line():
    with pytest.raises(CapabilityError) as caught:
        on_reference((Greedy(), "draft(model=small)"))
    assert "no model 'small' is open; open one, or use one of: draft, policy, prm" in str(caught.value)


def test_an_unknown_method_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match="give one of ngram"):
        solve(scripted(), Samples(n=2), speculate="medusa")
