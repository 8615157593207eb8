"""Countdown: combine each number once with + - * / to reach a target.

Operations are legal with a >= b, an exact quotient and a result of at most 999. Operands are written larger
first. A thinking step is `a*b=c>remaining;` with the remaining numbers in ascending order.
"""

import functools
import random
import re

import msgspec

from .countdown_moves import NUMBER_MAX, Move, apply_move, draw_play, expression, reachable_results
from .trace import (
    OutOfRangeError,
    Span,
    Split,
    Trace,
    TraceKind,
    cut_spans,
    draw_kind,
    in_split,
    plain_spans,
    restart_spans,
)

COUNTS = (2, 3, 4)
COUNT_WEIGHTS = (1, 4, 4)
TARGET_MAX = 99
TASK_MARK = "C"

_SENTENCE = re.compile(
    r"\s*us(?:e|ing)\s+(.+?)[\s,]+(?:to\s+)?(?:make|get|reach)\s+(\S+?)\s*[.!?]*\s*", re.IGNORECASE
)
_SEPARATOR = re.compile(r"(?:\s|,|&|\band\b)+", re.IGNORECASE)
DIGITS_MAX = 12
_INTEGER = re.compile(r"[+-]?\d+")


class Instance(msgspec.Struct, frozen=True):
    """A Countdown problem: the numbers in ascending order, and the target."""

    numbers: tuple[int, ...]
    target: int


def recognise(text: str) -> Instance | None:
    """Read a sentence such as "Use 3, 7 and 12 to make 43"; None where the text is no such sentence.

    Raises `OutOfRangeError` where it is one, with numbers outside what the models were trained on.
    """
    match = _SENTENCE.fullmatch(text)
    if match is None:
        return None
    words = [word for word in _SEPARATOR.split(match[1]) if word]
    if not any(_INTEGER.match(word) for word in words):
        return None
    for word in (*words, match[2]):
        if not _INTEGER.fullmatch(word):
            raise OutOfRangeError(f"Countdown takes whole numbers, not {word!r}")
        if len(word) > DIGITS_MAX:
            raise OutOfRangeError(
                f"Countdown takes numbers from 1 to {NUMBER_MAX}, got one of {len(word)} digits"
            )
    instance = Instance(tuple(sorted(map(int, words))), int(match[2]))
    _check_range(instance)
    return instance


def _check_range(instance: Instance) -> None:
    count = len(instance.numbers)
    if count not in COUNTS:
        raise OutOfRangeError(f"Countdown takes {COUNTS[0]} to {COUNTS[-1]} numbers, got {count}")
    for number in instance.numbers:
        if not 1 <= number <= NUMBER_MAX:
            raise OutOfRangeError(f"Countdown takes numbers from 1 to {NUMBER_MAX}, got {number}")
    if not 1 <= instance.target <= TARGET_MAX:
        raise OutOfRangeError(f"Countdown takes a target from 1 to {TARGET_MAX}, got {instance.target}")


def prompt(instance: Instance) -> str:
    """The model's compact prompt, for example `C3,7,12>43:`."""
    return f"{TASK_MARK}{','.join(map(str, instance.numbers))}>{instance.target}:"


def sentence(instance: Instance) -> str:
    """The human sentence of an instance; `recognise` reads it back."""
    *head, last = map(str, instance.numbers)
    return f"Use {', '.join(head)} and {last} to make {instance.target}"


@functools.lru_cache(maxsize=1 << 16)
def _in_split(numbers: tuple[int, ...], split: Split | None) -> bool:
    return in_split("countdown:" + ",".join(map(str, numbers)), split)


def is_held_out(instance: Instance) -> bool:
    """Whether the instance's multiset of numbers is held out of training."""
    return _in_split(instance.numbers, Split.HELD_OUT)


def generate(rng: random.Random, split: Split | None, count: int | None = None) -> Instance:
    """Draw a solvable instance; its target is the result of uniformly random legal play."""
    return _generate_with_play(rng, split, count)[0]


def generate_trace(
    rng: random.Random, split: Split | None, count: int | None = None
) -> tuple[Instance, Trace]:
    """Draw an instance with a training trace that solves it."""
    instance, moves = _generate_with_play(rng, split, count)
    return instance, Trace(prompt(instance), _spans(rng, instance, moves, draw_kind(rng.random())))


def _generate_with_play(
    rng: random.Random, split: Split | None, count: int | None
) -> tuple[Instance, list[Move]]:
    drawn = count if count is not None else rng.choices(COUNTS, COUNT_WEIGHTS)[0]
    while True:
        numbers = tuple(sorted(int(rng.random() * NUMBER_MAX) + 1 for _ in range(drawn)))
        if not _in_split(numbers, split):
            continue
        moves = draw_play(rng, numbers)
        if 1 <= moves[-1].result <= TARGET_MAX:
            return Instance(numbers, moves[-1].result), moves


def write_steps(numbers: tuple[int, ...], moves: list[Move]) -> list[str]:
    """The thinking steps of a play from `numbers`, each with its mark."""
    steps = []
    remaining = numbers
    for move in moves:
        remaining = apply_move(remaining, move)
        steps.append(f"{move.left}{move.operator}{move.right}={move.result}>{','.join(map(str, remaining))};")
    return steps


def _spans(rng: random.Random, instance: Instance, moves: list[Move], kind: TraceKind) -> tuple[Span, ...]:
    steps = write_steps(instance.numbers, moves)
    answer = expression(instance.numbers, moves)
    if kind is TraceKind.CUT:
        return cut_spans(steps, rng.randrange(len(steps)), answer)
    if kind is TraceKind.RESTART:
        failed = _dead_branch(rng, instance)
        if failed is not None:
            return restart_spans(write_steps(instance.numbers, failed), steps, answer)
    return plain_spans(steps, answer)


def _dead_branch(rng: random.Random, instance: Instance, tries: int = 8) -> list[Move] | None:
    """Legal play of one or more steps from whose end the target cannot be reached; None after `tries`."""
    for _ in range(tries):
        moves = draw_play(rng, instance.numbers)[: rng.randint(1, len(instance.numbers) - 1)]
        remaining = instance.numbers
        for move in moves:
            remaining = apply_move(remaining, move)
        if instance.target not in reachable_results(remaining):
            return moves
    return None
