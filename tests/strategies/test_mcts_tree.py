"""PUCT, UCT and back-up on trees made by hand, with numbers worked out by hand."""

import random

import pytest
from branchwise.strategies.mcts import Mcts, SelectionRule
from branchwise.strategies.mcts_tree import (
    Backup,
    TreeNode,
    back_up,
    best_child,
    close,
    hold,
    principal_leaf,
    puct,
    release,
    select_leaf,
    softmax,
    uct,
)
from hypothesis import given
from hypothesis import strategies as st

PUCT, UCT = Mcts().asks, Mcts(rule=SelectionRule.UCT).asks
ALPHAZERO = {"c_base": 19652.0, "c_init": 1.25}


def parent_of(*children: tuple[float, int, float], visits: int) -> TreeNode:
    """A node with children of (sum of values, visits, prior)."""
    node = TreeNode(leaf="root", visits=visits)
    node.attach([str(index) for index in range(len(children))], [prior for _, _, prior in children])
    for child, (total, child_visits, _) in zip(node.children, children, strict=True):
        child.total, child.visits = total, child_visits
    return node


@pytest.mark.parametrize(
    ("q", "prior", "visits", "parent_visits", "asks"),
    [(0.5, 0.2, 2, 4, 0.6667006), (0.3, 0.5, 1, 4, 0.9251272), (0.0, 0.3, 0, 4, 0.7501526)],
)
def test_puct_by_hand(q: float, prior: float, visits: int, parent_visits: int, asks: float) -> None:
    """c = ln(19657 / 19652) + 1.25 = 1.2502544."""
    assert puct(q, prior, visits, parent_visits, **ALPHAZERO) == pytest.approx(asks, abs=1e-7)


def test_the_exploration_of_puct_grows_with_the_base():
    """c = ln(4) + 1 with N = 2 and a base of 1."""
    assert puct(0.0, 1.0, 0, 2, c_base=1.0, c_init=1.0) == pytest.approx(2.3862944 * 2**0.5)


def test_uct_by_hand():
    """ln 10 = 2.3025851."""
    root2 = 2**0.5
    assert uct(0.6, 6, 10, w=root2) == pytest.approx(1.4760870, abs=1e-6)
    assert uct(0.4, 4, 10, w=root2) == pytest.approx(1.4729830, abs=1e-6)
    assert uct(0.6, 6, 10, w=2.0) < uct(0.4, 4, 10, w=2.0)
    assert uct(0.0, 0, 10, w=0.0) == float("inf")


def test_puct_selects_by_value_prior_and_visits():
    node = parent_of((1.0, 2, 0.2), (0.3, 1, 0.5), (0.0, 0, 0.3), visits=4)
    assert best_child(node, PUCT).leaf == "1"
    back_up(node.children[1], 0.0, 1.0)
    assert best_child(node, PUCT).leaf == "2", "1 asks .616, 0 asks .686, 2 asks .839"


def test_puct_without_visits_takes_the_greatest_prior_then_the_first():
    assert best_child(parent_of((0.0, 0, 0.2), (0.0, 0, 0.4), (0.0, 0, 0.4), visits=0), PUCT).leaf == "1"


def test_uct_takes_children_without_a_visit_in_their_order():
    node = parent_of((0.9, 1, 1 / 3), (0.0, 0, 1 / 3), (0.0, 0, 1 / 3), visits=2)
    assert best_child(node, UCT).leaf == "1"
    back_up(node.children[1], 0.1, 1.0)
    assert best_child(node, UCT).leaf == "2"
    back_up(node.children[2], 0.0, 1.0)
    assert best_child(node, UCT).leaf == "0"


def test_the_discount_is_applied_once_for_each_edge():
    root = parent_of((0.0, 0, 1.0), visits=0)
    middle = root.children[0]
    middle.attach(["left", "right"], [0.5, 0.5])
    back_up(middle.children[0], 0.8, 0.5)
    back_up(middle.children[1], 0.4, 0.5)
    assert [node.value(Backup.MEAN) for node in middle.children] == pytest.approx([0.8, 0.4])
    assert middle.value(Backup.MEAN) == pytest.approx(0.3)
    assert root.value(Backup.MEAN) == pytest.approx(0.15)
    assert middle.value(Backup.MAX) == pytest.approx(0.4)
    assert root.value(Backup.MAX) == pytest.approx(0.2)
    assert (root.visits, middle.visits) == (2, 2)


def test_a_simulation_under_way_counts_as_a_loss_and_the_next_goes_elsewhere():
    root = parent_of((0.6, 1, 0.5), (0.55, 1, 0.5), visits=2)
    first = select_leaf(root, PUCT)
    assert first is not None
    assert first.leaf == "0"
    hold(first)
    assert first.value(Backup.MEAN) == pytest.approx(0.3)
    assert first.value(Backup.MAX) == first.best * 0.5
    second = select_leaf(root, PUCT)
    assert second is not None
    assert second.leaf == "1"
    hold(second)
    assert select_leaf(root, PUCT) is None, "all are held"
    release(first)
    release(second)
    assert (root.pending, first.pending, root.busy) == (0, 0, False)


def test_what_is_explored_is_closed_up_to_the_root():
    root = parent_of((0.9, 1, 0.5), (0.1, 1, 0.5), visits=2)
    best, other = root.children
    best.attach(["a", "b"], [0.5, 0.5])
    assert [node.leaf for node in close(best.children[0])] == ["a"]
    assert select_leaf(root, PUCT) is best.children[1]
    assert [node.leaf for node in close(best.children[1])] == ["b", "0"]
    assert select_leaf(root, PUCT) is other
    assert principal_leaf(root, Backup.MEAN) is other
    assert [node.leaf for node in close(other)] == ["1", "root"]
    assert select_leaf(root, PUCT) is None


def test_the_principal_leaf_is_the_most_visited_then_the_better():
    root = parent_of((0.9, 1, 0.5), (0.2, 2, 0.5), visits=3)
    assert principal_leaf(root, Backup.MEAN).leaf == "1"
    assert principal_leaf(parent_of((0.2, 1, 0.5), (0.9, 1, 0.5), visits=2), Backup.MEAN).leaf == "1"


@given(st.lists(st.floats(-50.0, 0.0), min_size=1, max_size=9))
def test_priors_are_shares(logits: list[float]) -> None:
    shares = softmax(logits)
    assert sum(shares) == pytest.approx(1.0)
    assert shares.index(max(shares)) == logits.index(max(logits)) or len(set(shares)) < len(shares)


@given(
    seed=st.integers(0, 2**16),
    rule=st.sampled_from(SelectionRule),
    parallel=st.integers(1, 5),
    discount=st.floats(0.1, 1.0),
)
def test_any_tree_is_explored_to_its_end_and_its_books_agree(
    seed: int, rule: SelectionRule, parallel: int, discount: float
) -> None:
    """Each leaf of a finite tree is evaluated once; N is the simulations below, Q lies in [0, 1]."""
    rng, asks = random.Random(seed), Mcts(rule=rule).asks
    root, ended, rounds = TreeNode(leaf=0), 0, 0
    while not root.closed:
        rounds += 1
        held: list[TreeNode] = []
        while len(held) < parallel and (leaf := select_leaf(root, asks)) is not None:
            hold(leaf)
            held.append(leaf)
        assert held
        for leaf in held:
            release(leaf)
            if leaf.visits == 0:
                back_up(leaf, rng.random(), discount)
            if leaf.leaf >= 3 or rng.random() < 0.2:
                ended += 1
                close(leaf)
            else:
                leaf.attach([leaf.leaf + 1] * 3, [1 / 3] * 3)
    nodes, waiting = [], [root]
    while waiting:
        nodes.append(waiting.pop())
        waiting.extend(nodes[-1].children)
    assert ended == sum(not node.children for node in nodes)
    for node in nodes:
        assert node.pending == 0
        assert node.visits == 1 + sum(child.visits for child in node.children)
        assert 0.0 <= node.value(Backup.MEAN) <= node.value(Backup.MAX) <= 1.0
