"""Steps that take no time of this machine: what they would take on another one is added to a clock."""

from collections.abc import Callable

from ...engine.protocol import SeqId
from ...engine.sampling.detail import Alternatives, TokenDetail, TokenStats
from ...engine.sampling.params import SamplingParams
from ...engine.sched.plan import Drawn, ModelPlan, ModelResult, Sample, Span, SpanScores
from .oracle import OracleWriter, mixed
from .step_time import StepClock, StepSeconds

LOGPROB = -1.0
"""What every token is told to have had; nobody's plan depends on it."""


class Progress:
    """What the simulated machine did: seconds by part, steps, rows."""

    def __init__(self, step_s: float) -> None:
        self.spent = StepSeconds()
        self.steps = 0
        self.rows = 0
        self.drawn = 0
        self.on_step: Callable[[], None] = lambda: None
        """Called on the engine's thread when a step has taken its time."""
        self._step_s = step_s

    @property
    def now(self) -> float:
        """Simulated seconds since the machine was started."""
        return self.spent.total

    def stepped(self, seconds: StepSeconds, *, rows: int, drawn: int) -> None:
        """One model's part of a step is done. Models of one step run one behind the other."""
        self.spent = self.spent.plus(seconds).plus(StepSeconds(host=self._step_s))
        self.steps += 1
        self.rows += rows
        self.drawn += drawn
        self.on_step()


class SimulatedRunner:
    """Implements `StepRunner` for one model of a plan; `prompt` is the length of the prompts, in tokens."""

    def __init__(self, clock: StepClock, writer: OracleWriter, progress: Progress, *, prompt: int) -> None:
        self._clock = clock
        self._writer = writer
        self._progress = progress
        self._prompt = prompt
        self._kept: dict[SeqId, int] = {}

    def execute(self, plan: ModelPlan) -> ModelResult:
        """Draw what is asked for, and let the time of the rows pass."""
        for seq in plan.forget:
            self._kept.pop(seq, None)
        drawn: list[Drawn] = []
        for span in plan.spans:
            before = span.tokens[-1]
            if span.keep_logits:
                self._kept[span.seq] = before
            drawn += [self._drawn(sample, before) for sample in span.samples]
        drawn += [self._drawn(kept.sample, self._kept.get(kept.source, -1)) for kept in plan.kept_samples]
        scores = tuple(_scores(span) for span in plan.spans if span.reward_at or span.logprob_at)
        rows = sum(len(span.tokens) for span in plan.spans)
        self._progress.stepped(self._clock.seconds(plan), rows=rows, drawn=len(drawn))
        return ModelResult(drawn=tuple(drawn), scores=scores)

    def _drawn(self, sample: Sample, before: int) -> Drawn:
        token = self._writer.token(sample.seed, sample.position, before, self._prompt)
        return Drawn(sample.seq, token, LOGPROB, _detail(sample.params, token), sample.node)


def _detail(params: SamplingParams, token: int) -> TokenDetail | None:
    """What the sampling asks to be told."""
    if not params.tells:
        return None
    count = params.top_logprobs
    alternatives = Alternatives((token,) * count, (LOGPROB,) * count) if count else None
    stats = TokenStats(1.0, 1.0, 1.0) if params.stats_top_k else None
    return TokenDetail(LOGPROB if params.processed_logprobs else None, alternatives, stats)


def _scores(span: Span) -> SpanScores:
    """Rewards in [0, 1), by hash of the sequence and position."""
    rewards = tuple(mixed(span.seq, position) / 2**64 for position in span.reward_at)
    return SpanScores(span.seq, rewards, (LOGPROB,) * len(span.logprob_at))
