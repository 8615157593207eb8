"""Posteriors, back-up and Thompson sampling of AB-MCTS, with numbers worked out by hand."""

import random
import statistics

import msgspec
import pytest
from branchwise.strategies.ab_tree import AbNode, by_score, choose, exhaust
from branchwise.strategies.arm_posterior import Belief, Bernoulli, Gaussian
from hypothesis import given
from hypothesis import strategies as st

Scores = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)


class Sure(msgspec.Struct, frozen=True):
    """A belief that always draws the same."""

    value: float

    def told(self, score: float) -> "Sure":
        return Sure(score)

    def draw(self, rng: random.Random) -> float:
        return self.value


def node(state: str, gen: float, cont: float, arm: float = 0.0, parent: AbNode | None = None) -> AbNode:
    made = AbNode(gen=Sure(gen), cont=Sure(cont), arm=Sure(arm), state=state, parent=parent)
    if parent is not None:
        parent.children.append(made)
    return made


def test_the_gaussian_posterior_by_hand():
    """After .8: m = .8 / 2, tau^2 = (.1 + .8^2 / 2) / 2; after .4, which is the mean, nothing is added."""
    once = Gaussian().told(0.8)
    assert msgspec.structs.astuple(once) == pytest.approx((0.4, 2.0, 2.0, 0.21))
    assert msgspec.structs.astuple(once.told(0.4)) == pytest.approx((0.4, 3.0, 3.0, 0.14))


def test_the_beta_posterior_by_hand():
    assert msgspec.structs.astuple(Bernoulli().told(0.8).told(0.25)) == pytest.approx((1.55, 1.45))


@given(Scores)
def test_scores_told_one_by_one_are_scores_told_at_once(scores: list[float]) -> None:
    """The closed form over all scores (Murphy 2023, 3.4.3.3), with the default prior."""
    belief = Gaussian()
    for score in scores:
        belief = belief.told(score)
    n, mean = len(scores), statistics.fmean(scores)
    spread = sum((score - mean) ** 2 for score in scores)
    assert belief.kappa == belief.nu == 1 + n
    assert belief.m == pytest.approx(n * mean / (1 + n))
    assert belief.tau2 == pytest.approx((0.1 + spread + n * mean**2 / (1 + n)) / (1 + n))


def test_draws_have_the_moments_of_their_posterior():
    """Var mu = nu tau^2 / (nu - 2) / kappa; of Beta(3, 1) the mean is .75 and the variance .0375."""
    rng = random.Random(4)
    gaussian = [Gaussian(m=0.5, kappa=10.0, nu=10.0, tau2=0.04).draw(rng) for _ in range(20_000)]
    assert statistics.fmean(gaussian) == pytest.approx(0.5, abs=0.003)
    assert statistics.variance(gaussian) == pytest.approx(0.005, rel=0.06)
    beta = [Bernoulli(a=3.0, b=1.0).draw(rng) for _ in range(20_000)]
    assert statistics.fmean(beta) == pytest.approx(0.75, abs=0.005)
    assert statistics.variance(beta) == pytest.approx(0.0375, rel=0.05)


def test_a_score_goes_to_gen_of_the_parent_and_to_cont_and_arms_above():
    """root: a (.8), then under it b (.4), under that c (.2); at last d (.6) beside a."""
    root = AbNode.of(Belief.BETA, "root")
    a = root.add(Belief.BETA, "a", 0.8)
    b = a.add(Belief.BETA, "b", 0.4)
    c = b.add(Belief.BETA, "c", 0.2)
    d = root.add(Belief.BETA, "d", 0.6)

    def told(*scores: float) -> Bernoulli:
        return Bernoulli(a=0.5 + sum(scores), b=0.5 + sum(1.0 - score for score in scores))

    expected = [
        (root.gen, told(0.8, 0.6)),
        (root.cont, told(0.4, 0.2)),
        (a.arm, told(0.8, 0.4, 0.2)),
        (a.gen, told(0.4)),
        (a.cont, told(0.2)),
        (b.arm, told(0.4, 0.2)),
        (b.gen, told(0.2)),
        (b.cont, told()),
        (c.arm, told(0.2)),
        (d.arm, told(0.6)),
    ]
    for found, right in expected:
        assert isinstance(found, Bernoulli)
        assert (found.a, found.b) == pytest.approx((right.a, right.b))


def test_a_score_that_is_not_known_tells_nothing():
    root = AbNode.of(Belief.GAUSSIAN, "root")
    child = root.add(Belief.GAUSSIAN, "a", None)
    assert root.gen == child.arm == Gaussian()
    assert root.children == [child]


def test_gen_or_cont_and_then_the_arm_that_draws_most():
    root = node("root", gen=0.3, cont=0.7)
    node("a", gen=0.9, cont=0.0, arm=0.2, parent=root)
    b = node("b", gen=0.1, cont=0.5, arm=0.6, parent=root)
    c = node("c", gen=0.0, cont=1.0, arm=0.0, parent=b)
    assert choose(root, random.Random(0)) is c, "CONT to b, CONT to c, which has no children yet"
    b.gen = Sure(0.5)
    assert choose(root, random.Random(0)) is b, "equals generate"
    exhaust(b)
    assert choose(root, random.Random(0)) is c
    exhaust(c)
    chosen = choose(root, random.Random(0))
    assert chosen is not None
    assert chosen.state == "a", "all of b is closed"


def test_a_tree_with_nothing_left_chooses_nothing():
    root = node("root", gen=0.0, cont=0.0)
    a = node("a", gen=0.0, cont=0.0, parent=root)
    exhaust(root)
    assert choose(root, random.Random(0)) is a
    exhaust(a)
    assert root.closed
    assert choose(root, random.Random(0)) is None


def test_draws_are_made_in_a_fixed_order_from_the_given_generator():
    """GEN, CONT, then the children's arms in their order; the same generator, drawn by hand, says who."""
    root = AbNode.of(Belief.BETA, "root")
    for name, score in (("a", 0.3), ("b", 0.9), ("c", 0.5)):
        root.add(Belief.BETA, name, score).gen = Bernoulli(a=9.0, b=1.0)
    root.cont = Bernoulli(a=6.0, b=3.0)
    rng, by_hand = random.Random(2), random.Random(2)
    for _ in range(50):
        gen, cont = by_hand.betavariate(2.2, 1.8), by_hand.betavariate(6.0, 3.0)
        right = "root"
        if gen < cont:
            arms = {
                name: by_hand.betavariate(0.5 + score, 1.5 - score)
                for name, score in (("a", 0.3), ("b", 0.9), ("c", 0.5))
            }
            right = max(arms, key=lambda name: arms[name])
        chosen = choose(root, rng)
        assert chosen is not None
        assert chosen.state == right


def test_gen_is_drawn_as_often_as_it_is_the_greater():
    """Of Beta(2, 1) against Beta(1, 1) the first is the greater with probability 2/3."""
    root = AbNode.of(Belief.BETA, "root")
    root.add(Belief.BETA, "a", None)
    root.gen, root.cont = Bernoulli(a=2.0, b=1.0), Bernoulli(a=1.0, b=1.0)
    rng = random.Random(5)
    generated = sum(choose(root, rng) is root for _ in range(6000))
    assert generated / 6000 == pytest.approx(2 / 3, abs=0.02)


def test_open_nodes_by_score_are_the_highest_first_and_the_unknown_last():
    root = AbNode.of(Belief.BETA, "root")
    assert by_score(root) == []
    a, b = root.add(Belief.BETA, "a", 0.5), root.add(Belief.BETA, "b", 0.9)
    a.add(Belief.BETA, "c", 0.5)
    b.add(Belief.BETA, "d", None)
    assert [node.state for node in by_score(root)] == ["b", "a", "c", "d"]
    exhaust(a)
    assert [node.state for node in by_score(root)] == ["b", "a", "c", "d"], "c may still have children"
    exhaust(a.children[0])
    assert [node.state for node in by_score(root)] == ["b", "d"]
