"""Legal play of Countdown: moves, uniformly random play, brute-force reachability, the infix expression."""

import functools
import itertools
import random
from typing import NamedTuple

NUMBER_MAX = 20
INTERMEDIATE_MAX = 999

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_ATOM_PRECEDENCE = 3


class Move(NamedTuple):
    """One operation with `left >= right`."""

    left: int
    operator: str
    right: int
    result: int


@functools.lru_cache(maxsize=1 << 18)
def pair_moves(left: int, right: int) -> tuple[Move, ...]:
    """The legal moves on one pair of numbers."""
    if left < right:
        left, right = right, left
    moves = [Move(left, "-", right, left - right)]
    if left + right <= INTERMEDIATE_MAX:
        moves.append(Move(left, "+", right, left + right))
    if left * right <= INTERMEDIATE_MAX:
        moves.append(Move(left, "*", right, left * right))
    if right and left % right == 0:
        moves.append(Move(left, "/", right, left // right))
    return tuple(moves)


def legal_moves(numbers: tuple[int, ...]) -> set[Move]:
    """All distinct legal moves on a multiset."""
    return {move for pair in itertools.combinations(numbers, 2) for move in pair_moves(*pair)}


def apply_move(numbers: tuple[int, ...], move: Move) -> tuple[int, ...]:
    """The multiset after a move, in ascending order; ValueError where an operand is not in it."""
    remaining = list(numbers)
    remaining.remove(move.left)
    remaining.remove(move.right)
    remaining.append(move.result)
    remaining.sort()
    return tuple(remaining)


def draw_move(rng: random.Random, numbers: tuple[int, ...]) -> Move:
    """Uniformly random legal play: a uniform pair, then a uniform operation on it."""
    first = int(rng.random() * len(numbers))
    second = int(rng.random() * (len(numbers) - 1))
    moves = pair_moves(numbers[first], numbers[second + (second >= first)])
    return moves[int(rng.random() * len(moves))]


def draw_play(rng: random.Random, numbers: tuple[int, ...]) -> list[Move]:
    """Random legal play down to one number."""
    moves = []
    while len(numbers) > 1:
        move = draw_move(rng, numbers)
        moves.append(move)
        numbers = apply_move(numbers, move)
    return moves


@functools.lru_cache(maxsize=1 << 16)
def reachable_results(numbers: tuple[int, ...]) -> frozenset[int]:
    """Every result of legal play that uses all the numbers (ascending order), by brute force."""
    if len(numbers) == 1:
        return frozenset(numbers)
    following = {apply_move(numbers, move) for move in legal_moves(numbers)}
    return frozenset().union(*map(reachable_results, following))


def expression(numbers: tuple[int, ...], moves: list[Move]) -> str:
    """The infix expression of a whole play, with parentheses only where precedence needs them."""
    items = [(number, str(number), _ATOM_PRECEDENCE) for number in numbers]
    for move in moves:
        left = _take(items, move.left)
        right = _take(items, move.right)
        items.append(_join(left, move, right))
    return items[0][1]


def _take(items: list[tuple[int, str, int]], value: int) -> tuple[str, int]:
    index = next(i for i, item in enumerate(items) if item[0] == value)
    _, text, precedence = items.pop(index)
    return text, precedence


def _join(left: tuple[str, int], move: Move, right: tuple[str, int]) -> tuple[int, str, int]:
    precedence = _PRECEDENCE[move.operator]
    left_text = f"({left[0]})" if left[1] < precedence else left[0]
    binds_tighter = right[1] > precedence or (right[1] == precedence and move.operator in "+*")
    right_text = right[0] if binds_tighter else f"({right[0]})"
    return move.result, f"{left_text}{move.operator}{right_text}", precedence
