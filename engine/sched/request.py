"""What was asked of a sequence and how far it got: an extension or a scoring."""

import abc
import enum
from collections.abc import Sequence as Seq
from typing import NamedTuple, Protocol

import msgspec

from ..errors import HandleError
from ..protocol import ExtendParams, Extension, Meter, Pinned, ScoreParams, Scores, SeqId, Work, WorkKind
from ..sampling.detail import Alternatives
from ..sampling.drafting import Drafting
from ..sampling.rules import row_rules
from ..text.grammar import GrammarState
from ..text.stop import Stop
from .gains import Gains
from .grant import Grant
from .plan import Drawn
from .sequence import Sequence

Key = tuple[int, tuple[int, ...], int]
"""How requests are sorted: the more urgent first, then the order that their search gave, then arrival."""


class RequestState(enum.Enum):
    """WAITING: not admitted, or preempted. RUNNING: has a place in the next steps. DONE: its outcome is
    known.
    """

    WAITING = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()


class StopWatch(Protocol):
    """Decides after each token whether an extension ends (`engine.text.stop.StopChecker`)."""

    def push(self, token: int) -> Stop | None:
        """Why the extension ends with this token, None to go on."""
        ...

    def kept(self) -> int:
        """How many of the pushed tokens stay: a stop string is dropped."""
        ...

    def tail(self) -> tuple[int, ...]:
        """Ids that stand behind the kept ones: the text before a stop string that began inside a token."""
        ...


class Outcome(NamedTuple):
    """The end of a request: exactly one of `value` and `error`. `known` is the sequence's length by then."""

    request: int
    seq: SeqId
    known: int
    value: Extension | Scores | Pinned | None = None
    error: Exception | None = None


class Delta(msgspec.Struct, frozen=True, gc=False):
    """A token that a streaming request gained in a step."""

    request: int
    token: int


class Request(abc.ABC):
    """Rows `first <= p < end` of the sequence are needed themselves; rows before them only where their KV is
    missing.
    """

    __slots__ = (
        "first",
        "grant",
        "held",
        "id",
        "key",
        "kind",
        "meter",
        "seq",
        "started_at",
        "state",
        "submitted_at",
        "token_at",
    )

    def __init__(
        self, request: int, seq: Sequence, params: ExtendParams | ScoreParams, meter: Meter, kind: WorkKind
    ) -> None:
        self.id = request
        self.seq = seq
        self.meter = meter
        self.kind = kind
        self.key: Key = (-params.priority, params.order, request)
        self.state = RequestState.WAITING
        self.first = 0
        self.grant: Grant | None = None
        self.held = False
        """Nothing is asked for or planned: a draft is being written for it."""
        # The observer's notes, in seconds of its clock; -1.0 where it did not happen yet.
        self.submitted_at = -1.0
        self.started_at = -1.0
        self.token_at = -1.0

    @property
    def speculates(self) -> bool:
        """Whether drafts are to be put behind its rows."""
        return False

    @property
    @abc.abstractmethod
    def end(self) -> int:
        """Behind the last row that is needed."""

    @abc.abstractmethod
    def work(self) -> Work | None:
        """What to ask the meter for before the next rows; None where all of it was granted already."""

    def cut_chunk(self, start: int, end: int, computed: int) -> int:
        """Where a chunk from `start` ends at the latest, given that the KV below `computed` stands."""
        return end


class ExtendRequest(Request):
    """Sample token after token. The last known row is needed for the next token."""

    __slots__ = (
        "checker",
        "drafting",
        "gains",
        "grammar",
        "max_tokens",
        "params",
        "rules",
        "start",
        "streams",
    )

    def __init__(
        self,
        request: int,
        seq: Sequence,
        params: ExtendParams,
        meter: Meter,
        checker: StopWatch,
        *,
        streams: bool,
    ) -> None:
        super().__init__(request, seq, params, meter, WorkKind.PREFILL)
        self.params = params
        self.checker = checker
        self.streams = streams
        self.drafting: Drafting | None = None
        """Set where it writes drafts for another request."""
        self.max_tokens = params.max_tokens
        self.start = seq.known
        self.first = seq.known - 1
        self.gains = Gains()
        sampling, vocab = params.sampling, seq.memory.info.vocab_size
        self.grammar = _grammar_state(seq, params)
        self.rules = row_rules(
            sampling,
            [token for token in params.stop.eos_ids if 0 <= token < vocab],
            seq.prompt_length,
            seq.count_tokens() if sampling.penalises else None,
            self.grammar,
        )

    @property
    def speculates(self) -> bool:
        return self.params.speculate is not None

    @property
    def end(self) -> int:
        return self.first + 1

    def work(self) -> Work:
        """The rows up to the last one, its head and one token: all or nothing, so that no prefill is
        wasted.
        """
        seq, known = self.seq, self.first + 1
        start = min(seq.first_unpaid(), known)
        heads = () if seq.heads.paid(known - 1) else (known - 1,)
        rows = known - start
        self.kind = WorkKind.PREFILL if rows > 1 else WorkKind.DECODE
        return Work(model=seq.memory.name, kind=self.kind, start=start, rows=rows, heads=heads, tokens=1)

    def accept(self, found: Drawn) -> Stop | None:
        """Count a token that was put on the sequence; why the extension ends with it, if it does."""
        self.gains.add(found)
        self.first += 1
        if self.params.sampling.penalises:
            self.seq.count_tokens()
        if self.grammar is not None:
            self.grammar.push(found.token)
        stop = self.checker.push(found.token)
        if stop is not None:
            return stop
        if self.grammar is not None and self.grammar.finished:
            return Stop.ANSWER
        if len(self.gains) >= self.max_tokens:
            return Stop.LENGTH
        return Stop.CONTEXT if self.seq.known >= self.seq.memory.max_len else None

    def extension(self, stop: Stop) -> Extension:
        """The result, given that the dropped tokens are off the sequence already."""
        tokens = tuple(self.seq.tokens[self.start :])
        kept = self.checker.kept() if self.checker.tail() else len(tokens)
        return self.gains.extension(tokens, kept, stop)


def _grammar_state(seq: Sequence, params: ExtendParams) -> GrammarState | None:
    """Behind what stands on the sequence already."""
    constraint = params.constraint
    if constraint is None:
        return None
    return constraint.grammar.begin(seq.tokens[constraint.start :], seq.memory.info.vocab_size)


class ScoreRequest(Request):
    """Read the reward head, or the log-probabilities of given tokens, at rows of the sequence."""

    __slots__ = ("_gathered", "_needed", "_reward_at", "alternatives", "logprobs", "params", "rewards")

    def __init__(self, request: int, seq: Sequence, params: ScoreParams, meter: Meter) -> None:
        super().__init__(request, seq, params, meter, WorkKind.SCORE)
        self.params = params
        self._reward_at = frozenset(params.reward_at)
        rows = set(self._reward_at)
        if params.logprobs_from is not None:
            rows.update(range(params.logprobs_from - 1, seq.known - 1))
        self._needed = tuple(sorted(rows))
        self._gathered = 0
        self.first = self._needed[0] if rows else 0
        self.rewards: dict[int, float] = {}
        self.logprobs: dict[int, float] = {}
        self.alternatives: dict[int, Alternatives] = {}

    @property
    def end(self) -> int:
        return self._needed[-1] + 1

    @property
    def complete(self) -> bool:
        """Every needed row was read."""
        return self._gathered == len(self._needed)

    def work(self) -> Work | None:
        seq, end = self.seq, self.end
        start = min(seq.first_unpaid(), end)
        heads = tuple(position for position in self._needed if not seq.heads.paid(position))
        if start == end and not heads:
            return None
        return Work(model=seq.memory.name, kind=self.kind, start=start, rows=end - start, heads=heads)

    def cut_chunk(self, start: int, end: int, computed: int) -> int:
        """Where KV stands already only needed rows are computed: the chunk ends with the run of them."""
        if start >= computed:
            return end
        stop = start
        for row in self._needed[self._gathered :]:
            if row > stop or stop >= end:
                break
            stop = row + 1
        return min(stop, end)

    def reads(self, start: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Positions of the chunk to read the reward head at, and rows to read a token's log-probability
        at.
        """
        rows = tuple(row for row in self._needed[self._gathered :] if start <= row < end)
        rewards = tuple(row for row in rows if row in self._reward_at)
        begin = self.params.logprobs_from
        if begin is None:
            return rewards, ()
        return rewards, tuple(row for row in rows if row >= begin - 1 and row + 1 < self.seq.known)

    def gather(
        self,
        end: int,
        reads: tuple[Seq[int], Seq[int]],
        rewards: Seq[float],
        logprobs: Seq[float],
        alternatives: Seq[Alternatives] = (),
    ) -> None:
        """Take the values that a committed chunk ending at `end` read."""
        self.rewards.update(zip(reads[0], rewards, strict=True))
        self.logprobs.update(zip(reads[1], logprobs, strict=True))
        if self.params.top_logprobs:
            self.alternatives.update(zip(reads[1], alternatives, strict=True))
        while self._gathered < len(self._needed) and self._needed[self._gathered] < end:
            self._gathered += 1
        if not self.complete:
            self.first = self._needed[self._gathered]

    def scores(self) -> Scores:
        begin = self.params.logprobs_from
        rows = () if begin is None else range(begin - 1, self.seq.known - 1)
        return Scores(
            rewards=tuple(self.rewards[position] for position in self.params.reward_at),
            logprobs=tuple(self.logprobs[row] for row in rows),
            alternatives=tuple(self.alternatives[row] for row in rows) if self.params.top_logprobs else (),
        )


def cancelled_error(seq: SeqId) -> HandleError:
    """What a caller sees whose scoring has no result."""
    return HandleError(f"sequence {seq} was released, or its scoring cancelled, before the scores were known")
