"""What the state machine of the scheduler keeps beside the engine: meters per path, and what is pending."""

from __future__ import annotations

import math
import random
from itertools import islice

import msgspec
from branchwise.engine.drafting.params import DraftModel, Ngram, Speculate, Suffix
from branchwise.engine.errors import HandleError, StepFailed
from branchwise.engine.protocol import ExtendParams, ScoreParams, Scores, SeqId, Work
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelResult, SpanScores
from branchwise.engine.sched.request import Outcome
from branchwise.engine.sched.scheduler import StepLimits
from msgspec.structs import replace

from .checks import RecordingMeter, Rig
from .drafters import ErringRunner, RandomDrafter, steer
from .oracle import NaiveEngine, oracle_info

MAX_LEN = 30
PROMPTS = [[7] * 9, [7] * 8 + [3], [7] * 4 + [5] * 8, list(range(1, 14)), [9], list(range(1, 9))]
SAMPLING = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(repetition_penalty=1.7, presence_penalty=0.5, frequency_penalty=0.9),
    SamplingParams(temperature=0.0, frequency_penalty=2.0, min_tokens=4, logit_bias={5: 3.0, 17: -1.5}),
    SamplingParams(allowed_tokens=(3, 4, 5, 8, 17), repetition_penalty=0.5),
]
SPECULATE: list[Speculate | None] = [
    None,
    Ngram(k=3),
    Suffix(k=6),
    Suffix(k=4, width=3),
    DraftModel(k=3),
    DraftModel(k=3, width=3),
]


def make_rig(blocks: int, limits: StepLimits, digest_bytes: int, drafts: int) -> Rig:
    """A policy, a reward model, and drafts of all kinds; `drafts` seeds those that are steered."""
    infos = [
        oracle_info("policy", max_model_len=MAX_LEN),
        oracle_info("prm", max_model_len=MAX_LEN, head="reward"),
        oracle_info("draft", max_model_len=MAX_LEN - 4),
    ]
    rig = Rig(blocks, 4, limits=limits, infos=infos, digest_bytes=digest_bytes)
    steer(rig.scheduler.speculation, RandomDrafter(random.Random(drafts)))
    rig.runners["draft"] = ErringRunner(blocks, 4)
    return rig


class PathMeter(RecordingMeter):
    """Asserts that no row of a branch path is charged twice, whoever of the family pays, and no head twice
    on one sequence.

    `path` identifies the positions that stood on the sequence when the request was made; positions sampled
    since are the request's own.
    """

    def __init__(self, tokens: int | None, seq: SeqId, path: list[object], charged: set[object]) -> None:
        super().__init__(tokens)
        self.seq = seq
        self.path = path
        self._charged = charged

    def commit(self, work: Work) -> None:
        super().commit(work)
        charges = [("row", self._identity(p)) for p in range(work.start, work.start + work.rows)]
        charges += [("head", self.seq, self._identity(p)) for p in work.heads]
        for charge in charges:
            assert charge not in self._charged, charge
            self._charged.add(charge)

    def paid(self, positions: range) -> bool:
        return all(("row", self._identity(position)) in self._charged for position in positions)

    def identities(self, length: int) -> list[object]:
        return [self._identity(position) for position in range(length)]

    def _identity(self, position: int) -> object:
        return self.path[position] if position < len(self.path) else (id(self), position)


class Pending:
    """A submitted request and what it must give if nothing interferes."""

    def __init__(self, seq: SeqId, meter: PathMeter, before: list[int], prompt_length: int) -> None:
        self.seq = seq
        self.meter = meter
        self.before = before
        self.prompt_length = prompt_length
        self.params: ExtendParams | ScoreParams | None = None


def ratio_tested(method: Speculate | None, sampling: SamplingParams) -> Speculate | None:
    """The method under the ratio test, which has no trees, where the text is the greedy one all the same."""
    if method is None or sampling.temperature > 0:
        return method
    if isinstance(method, Ngram):
        return msgspec.structs.replace(method, verify="ratio")
    return msgspec.structs.replace(method, verify="ratio", width=1)


def spoil(result: ModelResult, place: int) -> ModelResult:
    """The result with its value at `place` (0: the first, -1: the last) not finite."""
    if result.drawn:
        drawn = list(result.drawn)
        drawn[place] = replace(drawn[place], logprob=math.nan)
        return msgspec.structs.replace(result, drawn=tuple(drawn))
    if result.scores:
        scores, one = list(result.scores), result.scores[place]
        scores[place] = SpanScores(one.seq, (math.nan,) * len(one.rewards), (math.nan,) * len(one.logprobs))
        return msgspec.structs.replace(result, scores=tuple(scores))
    return result


def uncut(pending: Pending, seed: int, count: int) -> list[int]:
    """The first `count` tokens that the pending extension samples, stop strings not yet taken off."""
    assert isinstance(pending.params, ExtendParams)
    draws = NaiveEngine.draws(pending.before, seed, pending.params, pending.prompt_length)
    return [token for token, _ in islice(draws, count)]


def check_scores(pending: Pending, outcome: Outcome) -> None:
    """The scoring gave what a recomputation gives, or failed with its step."""
    params = pending.params
    assert isinstance(params, ScoreParams)
    if outcome.error is not None:
        assert isinstance(outcome.error, StepFailed | HandleError)
        return
    value = outcome.value
    assert isinstance(value, Scores)
    rows = [*params.reward_at, *([len(pending.before) - 2] if params.logprobs_from else [])]
    if params.reward_at or (params.logprobs_from or 0) < len(pending.before):
        assert pending.meter.paid(range(max(rows, default=-1) + 1))
    assert list(value.rewards) == NaiveEngine.rewards(pending.before, params.reward_at)
    if params.logprobs_from is not None:
        assert list(value.logprobs) == NaiveEngine.logprobs(pending.before, params.logprobs_from)
