"""What the tasks share: traces with their loss mask, splits by hash, replay results and range errors."""

import enum
import hashlib
from collections.abc import Iterator

import msgspec

from ..vocabulary import EOS, STEP_MARK, THINK_END, WAIT

HELD_OUT_ONE_IN = 5
RESTART_SHARE = 0.2
CUT_SHARE = 0.1
SLIPS = (1, 1, 1, 2, 3, 4, 5, 9, 10, 10, 10, 20, 100)


class Split(enum.Enum):
    """Which side of the hash an instance lies on."""

    TRAIN = "train"
    HELD_OUT = "held_out"


class TraceKind(enum.Enum):
    """How a training trace goes: straight, with one failed branch first, or with thinking cut short."""

    PLAIN = "plain"
    RESTART = "restart"
    CUT = "cut"


class OutOfRangeError(ValueError):
    """The text is a sentence of the task, with numbers that the reference models were not trained on."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of a training trace; `trained` is false where the tokens carry no loss."""

    text: str
    trained: bool = True


class Trace(msgspec.Struct, frozen=True):
    """One training example: the compact prompt and the completion, as spans."""

    prompt: str
    spans: tuple[Span, ...]

    @property
    def completion(self) -> str:
        """The whole completion, end of thinking and eos included."""
        return "".join(span.text for span in self.spans)


class Replay(msgspec.Struct, frozen=True):
    """Result of an exact replay.

    `correct` depends on the answer alone. `legal` says that each thinking step followed the rules; `steps`
    counts the steps that end with the mark, failed branches included, and `restarts` the wait tokens.
    """

    correct: bool
    legal: bool
    steps: int
    restarts: int


def held_out(key: str) -> bool:
    """Whether the instance with this canonical key is held out of training: one in five, by blake2b."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


def in_split(key: str, split: Split | None) -> bool:
    """Whether the instance with this key belongs to `split`; None takes every instance."""
    return split is None or held_out(key) == (split is Split.HELD_OUT)


def draw_kind(roll: float) -> TraceKind:
    """Kind of trace for a uniform `roll` in [0, 1): a fifth restart, a tenth are cut."""
    if roll < RESTART_SHARE:
        return TraceKind.RESTART
    return TraceKind.CUT if roll < RESTART_SHARE + CUT_SHARE else TraceKind.PLAIN


def plain_spans(steps: list[str], answer: str) -> tuple[Span, ...]:
    """Thinking, end of thinking, answer, eos."""
    return (Span("".join(steps) + THINK_END + answer + EOS),)


def restart_spans(failed: list[str], steps: list[str], answer: str) -> tuple[Span, ...]:
    """A failed branch without loss, then the wait token and the solution from the root."""
    return (Span("".join(failed), trained=False), Span(WAIT), *plain_spans(steps, answer))


def cut_spans(steps: list[str], kept: int, answer: str) -> tuple[Span, ...]:
    """`kept` steps, an end of thinking that was forced (no loss), then the answer."""
    thinking = (Span("".join(steps[:kept])),) if kept else ()
    return (*thinking, Span(THINK_END, trained=False), Span(answer + EOS))


def split_completion(completion: str) -> tuple[str, str | None]:
    """Thinking and answer of a completion; the answer is None where thinking or answer has no end."""
    thinking, end, answer = completion.partition(THINK_END)
    if not end or not answer.endswith(EOS):
        return thinking, None
    return thinking, answer.removesuffix(EOS)


def split_steps(thinking: str) -> Iterator[str]:
    """Steps of a thinking text, each with its mark (a wait token stays at the head of its step).

    A tail without a mark is not a step and is left out.
    """
    start = 0
    while (end := thinking.find(STEP_MARK, start)) >= 0:
        yield thinking[start : end + 1]
        start = end + 1


def split_restart(step: str) -> tuple[bool, str]:
    """Whether a wait token stands in the step, and the step's text after the last one, without the mark."""
    _, wait, rest = step.rpartition(WAIT)
    return bool(wait), rest.removesuffix(STEP_MARK)
