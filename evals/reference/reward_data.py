"""Labelled traces for the process reward model: at each step mark, is the target still reachable?

Four sources: policy samples at temperature 1, uniformly random legal play, traces with one changed digit, and
random legal prefixes whose target is hit or just missed by the two numbers left.
Labels come from brute force (Countdown) or from the value of the listed expression (arithmetic).
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import torch

from .decoder import Decoder
from .sampler import sample
from .tasks import arithmetic, arithmetic_replay, countdown, countdown_replay
from .tasks.countdown_moves import draw_play
from .tasks.trace import SLIPS, Split, split_completion, split_restart, split_steps
from .vocabulary import BOS_ID, STEP_MARK_ID, THINK_END, encode

COUNTDOWN_COUNTS = (2, 3, 4)
COUNTDOWN_WEIGHTS = (1, 4, 7)
SAMPLES_PER_PROBLEM = 4
MAX_THINKING_TOKENS = 160
THREE_NUMBER_PREFIXES = 0.35
REPLAYS: dict[type, Any] = {countdown.Instance: countdown_replay, arithmetic.Instance: arithmetic_replay}
TASKS: dict[type, Any] = {countdown.Instance: countdown, arithmetic.Instance: arithmetic}

Instance = countdown.Instance | arithmetic.Instance


class LabelledTrace(msgspec.Struct, frozen=True):
    """Token ids of bos, prompt and thinking; for each step mark its index, its label and where it stands.

    `num_remaining` counts the numbers left after the step: the problem's less the steps of the branch so far.
    `legal` says whether every step of the branch so far followed the rules.
    """

    task: str
    token_ids: list[int]
    marks: list[int]
    labels: list[bool]
    num_remaining: list[int]
    legal: list[bool]


class Mixture(msgspec.Struct, frozen=True):
    """How many problems or traces each source gives."""

    sampled_countdown: int
    sampled_arithmetic: int
    random_countdown: int
    near_miss_countdown: int
    corrupted_countdown: int
    corrupted_arithmetic: int


def label(instance: Instance, thinking: str) -> LabelledTrace:
    """The labelled trace of a thinking text."""
    replay = REPLAYS[type(instance)]
    prompt = TASKS[type(instance)].prompt(instance)
    token_ids = [BOS_ID, *encode(prompt), *encode(thinking)]
    states = replay.step_states(instance, thinking)
    return LabelledTrace(
        task="countdown" if isinstance(instance, countdown.Instance) else "arithmetic",
        token_ids=token_ids,
        marks=[index for index, token_id in enumerate(token_ids) if token_id == STEP_MARK_ID],
        labels=[replay.is_reachable(instance, state) for state in states],
        num_remaining=_numbers_left(instance, thinking),
        legal=[state.legal for state in states],
    )


def _numbers_left(instance: Instance, thinking: str) -> list[int]:
    """Numbers left after each step, by count; a wait token starts over."""
    count = len(instance.numbers) if isinstance(instance, countdown.Instance) else instance.num_numbers
    left, numbers_left = count, []
    for step in split_steps(thinking):
        left = count - 1 if split_restart(step)[0] else left - 1
        numbers_left.append(left)
    return numbers_left


def draw_countdown(rng: random.Random, split: Split) -> countdown.Instance:
    """A Countdown problem, mostly of three and four numbers."""
    return countdown.generate(rng, split, rng.choices(COUNTDOWN_COUNTS, COUNTDOWN_WEIGHTS)[0])


def draw_arithmetic(rng: random.Random, split: Split) -> arithmetic.Instance:
    """An arithmetic problem of any trained length."""
    return arithmetic.generate(rng, split)


def sampled_traces(policy: Decoder, instances: list[Any], count: int, seed: int) -> list[LabelledTrace]:
    """Labelled distinct thinking texts of `count` policy samples at temperature 1 for each instance."""
    prompts = [TASKS[type(instance)].prompt(instance) for instance in instances]
    generator = torch.Generator().manual_seed(seed)
    completions = sample(policy, prompts, count, 1.0, generator, MAX_THINKING_TOKENS)
    traces = []
    for instance, group in zip(instances, completions, strict=True):
        thinking = dict.fromkeys(split_completion(completion.text)[0] for completion in group)
        traces += [label(instance, text) for text in thinking]
    return [trace for trace in traces if trace.marks]


def random_trace(rng: random.Random, split: Split) -> LabelledTrace:
    """Uniformly random legal play on a Countdown problem whose target it does not know."""
    instance = draw_countdown(rng, split)
    moves = draw_play(rng, instance.numbers)
    return label(instance, "".join(countdown.write_steps(instance.numbers, moves)))


def near_miss_trace(rng: random.Random, split: Split) -> LabelledTrace:
    """A random legal prefix down to two numbers, whose target one operation on them hits or just misses."""
    while True:
        instance = countdown.generate(rng, split, 3 if rng.random() < THREE_NUMBER_PREFIXES else 4)
        *prefix, last = draw_play(rng, instance.numbers)
        target = last.result if rng.random() < 0.5 else last.result + rng.choice((-1, 1)) * rng.choice(SLIPS)
        if 1 <= target <= countdown.TARGET_MAX:
            aimed = countdown.Instance(instance.numbers, target)
            return label(aimed, "".join(countdown.write_steps(instance.numbers, prefix)))


def corrupted_trace(rng: random.Random, task: Any, split: Split) -> LabelledTrace:
    """A right trace with one digit of its thinking changed; the steps after it stay as they were."""
    while True:
        instance, trace = task.generate_trace(rng, split)
        thinking = trace.completion.partition(THINK_END)[0]
        digits = [index for index, character in enumerate(thinking) if character.isdigit()]
        if digits:
            index = rng.choice(digits)
            return label(instance, f"{thinking[:index]}{rng.randrange(10)}{thinking[index + 1 :]}")


def build(policy: Decoder, mixture: Mixture, split: Split, seed: int) -> list[LabelledTrace]:
    """All labelled traces of a mixture, in random order."""
    rng = random.Random(seed)
    countdowns = [draw_countdown(rng, split) for _ in range(mixture.sampled_countdown)]
    arithmetics = [draw_arithmetic(rng, split) for _ in range(mixture.sampled_arithmetic)]
    traces = sampled_traces(policy, [*countdowns, *arithmetics], SAMPLES_PER_PROBLEM, seed)
    traces += [random_trace(rng, split) for _ in range(mixture.random_countdown)]
    traces += [corrupted_trace(rng, countdown, split) for _ in range(mixture.corrupted_countdown)]
    traces += [corrupted_trace(rng, arithmetic, split) for _ in range(mixture.corrupted_arithmetic)]
    traces += [near_miss_trace(rng, split) for _ in range(mixture.near_miss_countdown)]
    rng.shuffle(traces)
    return traces


class MarkScores(NamedTuple):
    """Values of a reward model at step marks, with what is needed to judge them."""

    values: list[float]
    labels: list[bool]


def select_marks(
    traces: Iterable[LabelledTrace], values: Iterable[list[float]], keep: Callable[[LabelledTrace, int], bool]
) -> MarkScores:
    """Values and labels of the marks that `keep(trace, step index)` accepts."""
    scores = MarkScores([], [])
    for trace, trace_values in zip(traces, values, strict=True):
        for step, (value, reachable) in enumerate(zip(trace_values, trace.labels, strict=True)):
            if keep(trace, step):
                scores.values.append(value)
                scores.labels.append(reachable)
    return scores
