"""A back end without a model: what each branch writes is a pure function of its text and seed, given by the
test.

It drives the real orchestrator: meters are asked as the scheduler would, one token at a time, and `pace`
makes branches run at different speeds, so that order by wall clock and order by logical time differ.
"""

from collections.abc import Callable, Mapping, Sequence

import anyio
import anyio.lowlevel
import msgspec
from branchwise.engine.errors import StepFailed
from branchwise.engine.protocol import (
    Capabilities,
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelCost,
    ModelInfo,
    ScoreParams,
    Scores,
    SeqId,
    Work,
    WorkKind,
)
from branchwise.engine.sampling.detail import TokenStats
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, StopChecker
from branchwise.engine.text.tokenizer import Message
from branchwise.engine.token_lists import TokenLists

EOS = "$"
THINK_END = "|"
COST = ModelCost(block_params=100, layers=2, attention_width=8, hidden=8, head_columns=128)


class CharTokenizer:
    """One id per ASCII character."""

    vocab_size = 128

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        return self.encode(f"Q{messages[-1].content}:")

    def token_id(self, text: str) -> int | None:
        return ord(text) if len(text) == 1 else None


THINKER = ModelProfile(
    step_mark=";", think_end=THINK_END, wait="W", final_answer="eos", stop_ids=frozenset({ord(EOS)})
)
PLAIN = ModelProfile(step_mark=";", final_answer="eos", stop_ids=frozenset({ord(EOS)}))

Script = Callable[[str, int], str]
"""(text so far, prompt included; seed) -> what comes next; its first character is taken. "" is the end."""

Logprob = Callable[[str, str, str], float]
"""(model, text before, character) -> the raw log-probability of that character there."""

Reward = Callable[[str], float]
"""Text up to the scored position, prompt included -> a value in [0, 1]."""


Stats = Callable[[str, int], TokenStats]
"""(text up to the token, prompt and token included; seed) -> how sure the model was."""


class _Sequence(msgspec.Struct):
    model: str
    tokens: list[int]
    seed: int
    usage: EngineUsage
    paid_rows: int = 0
    paid_heads: set[int] = msgspec.field(default_factory=set)
    running: anyio.CancelScope | None = None

    def fork(self, seed: int) -> "_Sequence":
        return _Sequence(
            self.model, list(self.tokens), seed, self.usage, self.paid_rows, set(self.paid_heads)
        )


class ScriptedEngine(TokenLists[_Sequence]):
    """Implements `Backend`. `scripts` by model name; `rewards` makes a model a scorer. `fail_at` raises
    `StepFailed` when that many tokens were generated in all, `fail_score_at` at that many score requests.
    `logprob` says what each token is worth (else -0.5); `stats` gives token statistics where they
    are asked for. `tokens_sampled` is the count independent of any ledger; `opened_for` has the namespace and
    tenant of each sequence that was opened."""

    def __init__(
        self,
        scripts: Mapping[str, Script],
        *,
        rewards: Mapping[str, Reward] | None = None,
        profile: ModelProfile = THINKER,
        max_model_len: int = 400,
        pace: Callable[[int, int], int] = lambda seed, position: 0,
        fail_at: int | None = None,
        fail_score_at: int | None = None,
        logprob: Logprob = lambda model, before, character: -0.5,
        stats: Stats | None = None,
    ) -> None:
        self.capabilities = Capabilities(
            score_logprob=True,
            score_reward=True,
            exact_meter=True,
            seeds=True,
            token_stats=stats is not None,
        )
        self._scripts = dict(scripts)
        self._rewards = dict(rewards or {})
        self._profile = profile
        self._max_model_len = max_model_len
        self._pace = pace
        self._fail_at = fail_at
        self._fail_score_at = fail_score_at
        self._logprob = logprob
        self._stats_of = stats
        super().__init__()
        self.tokens_sampled = 0
        self.scored = 0
        self.parked: list[SeqId] = []
        self.tokenizer = CharTokenizer()
        self.opened_for: list[tuple[str, str | None]] = []

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        names = [*self._scripts, *(name for name in self._rewards if name not in self._scripts)]
        return {name: self._info(name) for name in names}

    @property
    def live_sequences(self) -> int:
        return len(self._sequences)

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
        self.opened_for.append((namespace, tenant))
        return self._add(_Sequence(model, list(tokens), seed, usage or EngineUsage()))

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        parent = self._idle(seq)
        return [self._add(parent.fork(seed)) for seed in seeds]

    def truncate(self, seq: SeqId, position: int) -> None:
        super().truncate(seq, position)
        sequence = self._sequences[seq]
        sequence.paid_rows = min(sequence.paid_rows, position)
        sequence.paid_heads = {p for p in sequence.paid_heads if p < position}

    def park(self, seq: SeqId) -> None:
        self.parked.append(seq)

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        sequence = self._idle(seq)
        info = self.models[sequence.model]
        checker = StopChecker(params.stop, info.profile, info.tokenizer, sequence.tokens)
        start = len(sequence.tokens)
        generated = 0
        stop = Stop.LENGTH
        with self._busy(sequence) as scope:
            while generated < params.max_tokens:
                await anyio.lowlevel.checkpoint_if_cancelled()
                if len(sequence.tokens) >= self._max_model_len:
                    stop = Stop.CONTEXT
                    break
                work = self._work(sequence)
                if not await self._granted(meter, work, params.order):
                    stop = Stop.BUDGET
                    break
                await self._compute(sequence, meter, work)
                generated += 1
                if on_tokens is not None:
                    on_tokens(sequence.tokens[-1:])
                found = checker.push(sequence.tokens[-1])
                if found is not None:
                    stop = found
                    break
        if scope.cancelled_caught:
            stop = Stop.CANCELLED
        kept = (*sequence.tokens[start:][: checker.kept()], *checker.tail())
        sequence.tokens[start:] = kept
        return Extension(
            tokens=kept,
            logprobs=self._logprobs(sequence, start),
            stop=stop,
            generated=generated,
            stats=self._stats(sequence, start, params.sampling),
        )

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        sequence = self._idle(seq)
        last = max((*params.reward_at, len(sequence.tokens) - 1 if params.logprobs_from is not None else 0))
        start = sequence.paid_rows
        heads = tuple(p for p in params.reward_at if p not in sequence.paid_heads)
        work = Work(sequence.model, WorkKind.SCORE, start, max(0, last + 1 - start), heads)
        if not await self._granted(meter, work, params.order):
            return Scores(refused=True)
        await anyio.lowlevel.checkpoint()
        self.scored += 1
        if self.scored == self._fail_score_at:
            meter.refund(work)
            raise StepFailed("injected failure")
        meter.commit(work)
        sequence.paid_rows = max(sequence.paid_rows, last + 1)
        sequence.paid_heads.update(heads)
        reward = self._rewards.get(sequence.model, lambda text: 0.5)
        text = self.models[sequence.model].tokenizer.decode(sequence.tokens)
        begin = params.logprobs_from
        logprobs = () if begin is None else self._logprobs(sequence, begin)
        return Scores(rewards=tuple(reward(text[: p + 1]) for p in params.reward_at), logprobs=logprobs)

    def _logprobs(self, sequence: _Sequence, start: int) -> tuple[float, ...]:
        text = self.models[sequence.model].tokenizer.decode(sequence.tokens)
        return tuple(
            self._logprob(sequence.model, text[:place], text[place]) for place in range(start, len(text))
        )

    def _stats(self, sequence: _Sequence, start: int, sampling: SamplingParams) -> tuple[TokenStats, ...]:
        if self._stats_of is None or not sampling.stats_top_k:
            return ()
        text = self.models[sequence.model].tokenizer.decode(sequence.tokens)
        return tuple(self._stats_of(text[: end + 1], sequence.seed) for end in range(start, len(text)))

    def _work(self, sequence: _Sequence) -> Work:
        known = len(sequence.tokens)
        rows = known - sequence.paid_rows
        heads = () if known - 1 in sequence.paid_heads else (known - 1,)
        kind = WorkKind.PREFILL if rows > 1 else WorkKind.DECODE
        return Work(sequence.model, kind, sequence.paid_rows, rows, heads, tokens=1)

    async def _compute(self, sequence: _Sequence, meter: Meter, work: Work) -> None:
        """Compute what was granted. A cancellation comes before or after, never between the token and its
        commit."""
        with anyio.CancelScope(shield=True):
            for _ in range(1 + self._pace(sequence.seed, len(sequence.tokens))):
                await anyio.lowlevel.checkpoint()
        if self._fail_at is not None and self.tokens_sampled >= self._fail_at:
            self._fail_at = None
            meter.refund(work)
            raise StepFailed("injected failure")
        sequence.paid_rows = len(sequence.tokens)
        sequence.paid_heads.update(work.heads)
        text = self.models[sequence.model].tokenizer.decode(sequence.tokens)
        following = self._scripts[sequence.model](text, sequence.seed) or EOS
        sequence.tokens.append(ord(following[0]))
        self.tokens_sampled += 1
        meter.commit(work)

    def _info(self, name: str) -> ModelInfo:
        return ModelInfo(
            name=name,
            source=f"scripted-{name}",
            head="reward" if name in self._rewards else "lm",
            vocab_size=128,
            max_model_len=self._max_model_len,
            cost=COST,
            tokenizer=self.tokenizer,
            profile=self._profile,
            sampling=SamplingParams(),
            weights_digest="",
        )


def following(plan: Callable[[str, int], str], prompt_length: int) -> Script:
    """A script from the whole text that a branch of that prompt and seed writes."""

    def script(text: str, seed: int) -> str:
        whole = plan(text[:prompt_length], seed)
        return whole[len(text) - prompt_length :]

    return script
