"""What every back end offers to the search above it, and what the search must bring: the contract of the
engine floor.

A back end keeps *sequences*: token ids whose KV stands in blocks, shared by reference count. Verbs that need
no forward pass (`open`, `fork`, `append`, `truncate`, `park`, `release`) return at once and are applied in
the order of their calls before the next step is planned. `extend` and `score` wait for results.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NewType, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from .checked import Checked
from .drafting.params import Speculate
from .sampling.detail import Alternatives, TokenStats
from .sampling.params import SamplingParams
from .text.grammar import Constraint
from .text.profile import ModelProfile
from .text.step_format import StepFormat
from .text.stop import Stop, StopRule
from .text.tokenizer import Tokenizer

SeqId = NewType("SeqId", int)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a back end can do and know. A figure that it cannot know is reported as null, never as 0. Without
    `flops` the work of a model is not known, and no budget of it can be kept."""

    score_logprob: bool = False
    score_reward: bool = False
    token_stats: bool = False
    exact_meter: bool = False
    kv_account: bool = False
    seeds: bool = False
    speculates: bool = False
    flops: bool = True
    constrains: bool = False


class ModelCost(msgspec.Struct, frozen=True):
    """Logical work of one model in floating point operations (design section 3), in exact integers.

    `block_params`: parameters of the transformer blocks (no embedding, no head); `attention_width`: query
    heads times head size; `head_columns`: vocabulary size, or the number of labels of a reward head (its
    inner layer, where it has one, counts as well).
    """

    block_params: int
    layers: int
    attention_width: int
    hidden: int
    head_columns: int

    def rows(self, start: int, stop: int) -> int:
        """Work of the positions `start <= p < stop`; position p attends to p + 1 keys, its own included."""
        count = stop - start
        if count <= 0:
            return 0
        attended = (start + 1 + stop) * count // 2
        return 2 * self.block_params * count + 4 * self.layers * self.attention_width * attended

    def heads(self, count: int) -> int:
        """Work of the output head at `count` rows."""
        return 2 * self.hidden * self.head_columns * count


class WorkKind(enum.StrEnum):
    """Why rows are computed: to fill KV, to generate a token, or to score given ones."""

    PREFILL = "prefill"
    DECODE = "decode"
    SCORE = "score"


class Work(msgspec.Struct, frozen=True, gc=False):
    """One ask of a meter, in logical positions: each distinct row is asked for once per model and branch
    path.

    Rows `start <= p < start + rows` are new to the account; `heads` are the positions whose output head is
    newly needed; `tokens` is the number of positions that will be committed to the branch (1 for a sampled
    token).
    """

    model: str
    kind: WorkKind
    start: int
    rows: int
    heads: tuple[int, ...] = ()
    tokens: int = 0


class Verdict(enum.Enum):
    """A meter's answer: go on, not in this step (ask again), not now and give the blocks back (the request is
    preempted and asks again later), or never (the budget does not cover it).
    """

    GRANTED = enum.auto()
    DEFER = enum.auto()
    YIELD = enum.auto()
    REFUSED = enum.auto()


class Meter(Protocol):
    """The budget as the scheduler sees it. Called on the engine thread only; must not block.

    A grant is all or nothing and reserves what it grants. `commit` follows when the step that executed the
    work was committed (or the cache held its KV already), `refund` when it was reserved and then not
    computed. Both come in parts, rows chunk by chunk, whose sum is the grant.
    """

    def grant(self, work: Work) -> Verdict: ...

    def commit(self, work: Work) -> None: ...

    def refund(self, work: Work) -> None: ...


class Unlimited:
    """The meter of requests that no budget covers."""

    def grant(self, work: Work) -> Verdict:
        return Verdict.GRANTED

    def commit(self, work: Work) -> None:
        return None

    def refund(self, work: Work) -> None:
        return None


class EngineUsage(msgspec.Struct, kw_only=True):
    """What the engine really did for one account; it may differ between runs of one seed. Written by the
    engine only.

    Positions unless named otherwise. Each computed row is one of prefill, decode, score, recomputed and
    draft (`draft_tokens`); `accepted_tokens` are those drafts that stayed, the others were wasted.
    `kv_peak_tokens` counts a shared position once, `kv_unshared_peak_tokens` once per sequence that holds it.
    `unknown` names the figures that this back end cannot know: they are reported as null.
    """

    computed_flops: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    score_tokens: int = 0
    cached_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    parked: int = 0
    copied_blocks: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    kv_tokens: int = 0
    kv_unshared_tokens: int = 0
    kv_peak_tokens: int = 0
    kv_unshared_peak_tokens: int = 0
    unknown: tuple[str, ...] = ()


class ExtendParams(Checked, frozen=True, kw_only=True):
    """How to extend a sequence: `max_tokens` bounds the tokens sampled; `order` sorts the requests of one
    search, and of one tenant's requests those with a higher `priority` go first. `speculate` changes charges
    never, and tokens only where it asks for the ratio test: else only how many steps they take. A back end
    without `Capabilities.speculates` does not get one, and one without `Capabilities.constrains` no
    `constraint`: only tokens that fit it are drawn, and the extension ends (stop "answer") where it is
    complete. Raises `UsageError` for a value of another type.
    """

    sampling: SamplingParams
    stop: StopRule
    max_tokens: int
    order: tuple[int, ...] = ()
    speculate: Speculate | None = None
    priority: int = 0
    constraint: Constraint | None = None


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """What one `extend` added.

    `tokens` are the ids that stay on the sequence; `logprobs` their natural-log probabilities under the raw
    distribution (temperature 1, nothing masked), one per token. `generated` counts the positions that were
    sampled and paid for; it exceeds `len(tokens)` where a stop string was dropped.

    The rest is empty unless `SamplingParams` asked for it, else one per token: `processed_logprobs` in the
    distribution that the token was drawn from (biased, penalised, tempered, filtered), `alternatives` and
    `stats` of the raw one.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop
    generated: int
    processed_logprobs: tuple[float, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()
    stats: tuple[TokenStats, ...] = ()


class ScoreParams(Checked, frozen=True, kw_only=True):
    """What to score on a sequence: reward-head values at positions `reward_at`, and the log-probabilities of
    its own tokens at positions `logprobs_from <= p < len(tokens)`, with the `top_logprobs` likeliest ones in
    each place. `order` and `priority` as in `ExtendParams`. Raises `UsageError` for a value of another type.
    """

    reward_at: tuple[int, ...] = ()
    logprobs_from: int | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=1000)] = 0
    order: tuple[int, ...] = ()
    priority: int = 0


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """`rewards`: one sigmoid value in [0, 1] per asked position; `logprobs`: one per asked token, and
    `alternatives` beside each where `ScoreParams.top_logprobs` asked for them. `refused` is true when the
    meter did not cover the rows; all are then empty."""

    rewards: tuple[float, ...] = ()
    logprobs: tuple[float, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()
    refused: bool = False


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """Leading positions of a sequence that stay in the prefix cache: its whole blocks."""

    positions: int


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One loaded model as the floors above see it. `head` is "lm" or "reward"; `steps` is how a reward model
    reads the steps of another model's solution, None where nothing is known. The digests are of the base
    weights and of the LoRA adapter in them, empty without one.
    """

    name: str
    source: str
    head: str
    vocab_size: int
    max_model_len: int
    cost: ModelCost
    tokenizer: Tokenizer
    profile: ModelProfile
    sampling: SamplingParams
    weights_digest: str
    steps: StepFormat | None = None
    adapter_digest: str = ""


class Backend(Protocol):
    """The verbs of a back end, called on the event loop's thread.

    Handles are plain ids; a released or unknown one raises `HandleError`, one that is extending or being
    scored cannot be extended, forked, appended to or truncated (`HandleError`). What can never fit raises
    `CapacityError`.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def models(self) -> Mapping[str, ModelInfo]: ...

    def open(
        self,
        tokens: Sequence[int],
        *,
        seed: int,
        model: str = "policy",
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> SeqId:
        """Start a sequence from token ids. `usage` is the account that it and all its forks count into;
        rows are shared fairly between the tenants, which are the namespaces where `tenant` names no other.
        """
        ...

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        """One child per seed, sharing every KV block; no forward pass."""
        ...

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        """Add forced tokens; their rows are computed when the next extension or score needs them."""
        ...

    def truncate(self, seq: SeqId, position: int) -> None:
        """Keep the tokens before `position` (at least one)."""
        ...

    def park(self, seq: SeqId) -> None:
        """Give the blocks of an idle sequence back to the cache; its next use recomputes what was evicted.
        A hint: it does nothing for a sequence that is not idle by then. May be called from a meter."""
        ...

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        """End the sequence; its blocks are free before the next plan. Idempotent. Cancels what runs on it.
        `pruned` is a hint that nobody will want again what the sequence added since it was opened or forked.
        """
        ...

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        """Generate until the stop rule holds. Cancelling the caller stops at the step boundary: the wait for
        that is shielded, and what was committed by then is handed to `meter.commit` as usual and stays on the
        sequence.
        """
        ...

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        """Score tokens that stand on the sequence, reusing KV up to the first needed row."""
        ...

    def notify(self) -> None:
        """Tell the engine that a meter which deferred work may now grant it."""
        ...


@runtime_checkable
class Pinning(Protocol):
    """A back end that keeps prefixes in its cache on demand."""

    async def pin(self, seq: SeqId, ttl_s: float) -> Pinned:
        """Keep the KV of the sequence as it stands now, its whole blocks, for `ttl_s` seconds, also after its
        release. A second pin takes the place of the first. Raises `CapacityError` where pins keep too much
        already."""
        ...

    def unpin(self, seq: SeqId) -> None:
        """End the pin of a sequence, released or not. Idempotent."""
        ...
