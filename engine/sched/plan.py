"""One step of the engine as data: what the scheduler decided, and what the runner found. No torch here."""

import msgspec

from ..protocol import SeqId
from ..sampling.detail import Alternatives, TokenDetail
from ..sampling.drafting import Drafted, Drafting, Proposal
from ..sampling.params import SamplingParams
from ..sampling.rules import RowRules

TRASH_BLOCK = 0
"""Block 0 of every pool takes the writes that must go nowhere; no table ever holds it."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """Draw the token for `position` of sequence `seq` with that sequence's own noise.

    `rules` are the request's own object, with the counts of its sequence as they stand when the step runs;
    `drafted` are the tokens of a draft that stand between that sequence and the position. `node` names the
    row within the draft: 0 for the last known token's, else that of the draft's token with this number.
    `proposal` asks for the ratio test of a token, `drafting` for a draft model's own draw.
    """

    seq: SeqId
    seed: int
    position: int
    params: SamplingParams
    rules: RowRules | None = None
    drafted: tuple[int, ...] = ()
    node: int = 0
    proposal: Proposal | None = None
    drafting: Drafting | None = None


class Copy(msgspec.Struct, frozen=True, gc=False):
    """Copy the KV of block `source` to `target`, all layers, before the forward pass of the step."""

    source: int
    target: int


class Span(msgspec.Struct, frozen=True, gc=False):
    """Consecutive rows of one sequence. Of a draft that is a tree, each path has a span of its own.

    Rows are the positions `start <= p < start + len(tokens)`. `blocks` is the table that covers `[0, start +
    len(tokens))`; the same tuple object is passed while the table is unchanged. KV of rows before
    `write_from` already stands in shared or published blocks: those rows are computed and their write goes to
    the trash block. `samples` draw from the row before their position: the last one (several samples for
    children forked before their first token), or, where the last `drafted` tokens are a draft, one from each
    row from the last known token on that no other span samples. `keep_logits` asks the runner to keep the
    last row under `seq` for later `KeptSample`s. `reward_at` and `logprob_at` are positions within the span:
    the reward head's value at p, the log-probability of the token at p + 1 (`targets`) given row p, with the
    `leading` likeliest tokens of that row.
    """

    seq: SeqId
    start: int
    tokens: tuple[int, ...]
    blocks: tuple[int, ...]
    write_from: int
    samples: tuple[Sample, ...] = ()
    drafted: int = 0
    keep_logits: bool = False
    reward_at: tuple[int, ...] = ()
    logprob_at: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    leading: int = 0


class KeptSample(msgspec.Struct, frozen=True, gc=False):
    """Draw from the logits row kept under `source` by an earlier step; no row is computed."""

    source: SeqId
    sample: Sample


class ModelPlan(msgspec.Struct, frozen=True):
    """The rows of one model in one step. `copies` run first, then `forget` drops kept rows, then the forward
    pass.
    """

    model: str
    spans: tuple[Span, ...]
    copies: tuple[Copy, ...] = ()
    kept_samples: tuple[KeptSample, ...] = ()
    forget: tuple[SeqId, ...] = ()


class StepPlan(msgspec.Struct, frozen=True):
    """All models' rows of one step; `step_id` fences what may be freed only after it."""

    step_id: int
    models: tuple[ModelPlan, ...]


class Drawn(msgspec.Struct, frozen=True, gc=False):
    """A sampled token, its raw natural-log probability (temperature 1, nothing masked), and what else
    `SamplingParams` and `Sample.drafting` asked for."""

    seq: SeqId
    token: int
    logprob: float
    detail: TokenDetail | None = None
    node: int = 0
    drafted: Drafted | None = None


class NotDrawn(msgspec.Struct, frozen=True, gc=False):
    """No token could be drawn for `seq`, and why; its request fails, nothing else does. Where the model's
    own logits were not `finite`, the KV of the row is not sound either."""

    seq: SeqId
    reason: str
    node: int = 0
    finite: bool = True


class SpanScores(msgspec.Struct, frozen=True, gc=False):
    """Rewards (sigmoid, in [0, 1]) at `reward_at` and log-probabilities at `logprob_at` of one span, in
    order; the `leading` tokens beside each of these.
    """

    seq: SeqId
    rewards: tuple[float, ...]
    logprobs: tuple[float, ...]
    alternatives: tuple[Alternatives, ...] = ()


class ModelResult(msgspec.Struct, frozen=True):
    """What a runner returns for a `ModelPlan`: each sample, kept samples included, is in `drawn` or in
    `not_drawn`."""

    drawn: tuple[Drawn, ...]
    scores: tuple[SpanScores, ...] = ()
    not_drawn: tuple[NotDrawn, ...] = ()
