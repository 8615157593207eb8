"""Exact replay of Countdown: the state after each step, and the check of an answer expression.

Needs the numbers and the target only, never a gold answer, so a pass is sound.
"""

import ast
import re
from fractions import Fraction

import msgspec

from ..vocabulary import STEP_MARK
from .countdown import Instance
from .countdown_moves import Move, apply_move, pair_moves, reachable_results
from .trace import Replay, split_completion, split_restart, split_steps

_STEP = re.compile(r"(\d{1,4})([-+*/])(\d{1,4})=(\d{1,4})>(\d{1,4}(?:,\d{1,4})*)")
_ANSWER = re.compile(r"[\d+\-*/() ]{1,200}")


class State(msgspec.Struct, frozen=True):
    """Where a trace stands: the numbers that remain (ascending), and whether each step so far was legal.

    After an illegal step `remaining` keeps its last legal value until a wait token restarts from the root;
    `legal` is about the branch in progress, `always_legal` about the whole trace.
    """

    remaining: tuple[int, ...]
    legal: bool = True
    always_legal: bool = True


def start(instance: Instance) -> State:
    """The state before the first step."""
    return State(instance.numbers)


def advance(instance: Instance, state: State, step: str) -> State:
    """The state after one step's text, with or without its mark; a wait token restarts from the root."""
    restarted, text = split_restart(step)
    remaining = instance.numbers if restarted else state.remaining
    following = _play(remaining, text) if restarted or state.legal else None
    if following is None:
        return State(remaining, legal=False, always_legal=False)
    return State(following, legal=True, always_legal=state.always_legal)


def _play(remaining: tuple[int, ...], text: str) -> tuple[int, ...] | None:
    match = _STEP.fullmatch(text)
    if match is None:
        return None
    move = Move(int(match[1]), match[2], int(match[3]), int(match[4]))
    try:
        following = apply_move(remaining, move)
    except ValueError:
        return None
    listed = tuple(sorted(map(int, match[5].split(","))))
    return following if listed == following and move in pair_moves(move.left, move.right) else None


def step_states(instance: Instance, thinking: str) -> list[State]:
    """The state after each marked step of a thinking text."""
    states = []
    state = start(instance)
    for step in split_steps(thinking):
        state = advance(instance, state, step)
        states.append(state)
    return states


def is_reachable(instance: Instance, state: State) -> bool:
    """Whether the target can still be reached from a state; false after an illegal step."""
    return state.legal and instance.target in reachable_results(state.remaining)


def check_answer(instance: Instance, answer: str) -> bool:
    """Whether the answer is an expression over + - * / that uses each number once and equals the target."""
    if not _ANSWER.fullmatch(answer):
        return False
    try:
        tree = ast.parse(answer.strip(), mode="eval")
        value, numbers = _evaluate(tree.body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return False
    return value == instance.target and tuple(sorted(numbers)) == instance.numbers


def _evaluate(node: ast.expr) -> tuple[Fraction, list[int]]:
    """Exact value of an expression tree and its numbers; ValueError on anything but + - * / of integers."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return Fraction(number), [number]
        case ast.BinOp(left=left, op=operator, right=right):
            left_value, left_numbers = _evaluate(left)
            right_value, right_numbers = _evaluate(right)
            return _apply(left_value, operator, right_value), left_numbers + right_numbers
    raise ValueError(f"not allowed in an answer: {ast.dump(node)}")


def _apply(left: Fraction, operator: ast.operator, right: Fraction) -> Fraction:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
    raise ValueError(f"not allowed in an answer: {ast.dump(operator)}")


def replay(instance: Instance, thinking: str, answer: str | None) -> Replay:
    """Replay a trace: is the answer right, and was every step legal? An answer of None is not correct."""
    states = step_states(instance, thinking)
    complete = not thinking or thinking.endswith(STEP_MARK)
    return Replay(
        correct=answer is not None and check_answer(instance, answer),
        legal=complete and all(state.always_legal for state in states[-1:]),
        steps=len(states),
        restarts=sum(split_restart(step)[0] for step in split_steps(thinking)),
    )


def replay_completion(instance: Instance, completion: str) -> Replay:
    """Replay a completion with its end of thinking and eos spelt out."""
    return replay(instance, *split_completion(completion))
