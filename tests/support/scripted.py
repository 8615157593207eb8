"""A back end without a model: what each branch writes is a pure function of its text and seed, given by the
test.

It drives the real orchestrator: meters are asked as the scheduler would, one token at a time, and `pace`
makes branches run at different speeds, so that order by wall clock and order by logical time differ.
"""

from collections.abc import Callable, Mapping, Sequence

import anyio
import anyio.lowlevel
import msgspec
from branchwise.engine.errors import HandleError, StepFailed
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
    Verdict,
    Work,
    WorkKind,
)
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, StopChecker
from branchwise.engine.text.tokenizer import Message

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

Reward = Callable[[str], float]
"""Text up to the scored position, prompt included -> a value in [0, 1]."""


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


class ScriptedEngine:
    """Implements `Backend`. `scripts` by model name; `rewards` makes a model a scorer. `fail_at` raises
    `StepFailed` when that many tokens were generated in all. `tokens_sampled` is the count independent of
    any ledger."""

    def __init__(
        self,
        scripts: Mapping[str, Script],
        *,
        rewards: Mapping[str, Reward] | None = None,
        profile: ModelProfile = THINKER,
        max_model_len: int = 400,
        pace: Callable[[int, int], int] = lambda seed, position: 0,
        fail_at: int | None = None,
    ) -> None:
        self.capabilities = Capabilities(score_logprob=True, score_reward=True, exact_meter=True, seeds=True)
        self._scripts = dict(scripts)
        self._rewards = dict(rewards or {})
        self._profile = profile
        self._max_model_len = max_model_len
        self._pace = pace
        self._fail_at = fail_at
        self._sequences: dict[SeqId, _Sequence] = {}
        self._next = 0
        self._notified = anyio.Event()
        self.tokens_sampled = 0
        self.parked: list[SeqId] = []

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
        return self._add(_Sequence(model, list(tokens), seed, usage or EngineUsage()))

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        parent = self._idle(seq)
        return [self._add(parent.fork(seed)) for seed in seeds]

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        self._idle(seq).tokens.extend(tokens)

    def truncate(self, seq: SeqId, position: int) -> None:
        sequence = self._idle(seq)
        del sequence.tokens[position:]
        sequence.paid_rows = min(sequence.paid_rows, position)
        sequence.paid_heads = {p for p in sequence.paid_heads if p < position}

    def park(self, seq: SeqId) -> None:
        self.parked.append(seq)

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        sequence = self._sequences.pop(seq, None)
        if sequence is not None and sequence.running is not None:
            sequence.running.cancel()

    def notify(self) -> None:
        self._notified.set()

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
        with anyio.CancelScope() as scope:
            sequence.running = scope
            try:
                while generated < params.max_tokens:
                    if len(sequence.tokens) >= self._max_model_len:
                        stop = Stop.CONTEXT
                        break
                    work = self._work(sequence)
                    if not await self._granted(meter, work):
                        stop = Stop.BUDGET
                        break
                    await self._compute(sequence, meter, work)
                    generated += 1
                    found = checker.push(sequence.tokens[-1])
                    if found is not None:
                        stop = found
                        break
            finally:
                sequence.running = None
        if scope.cancelled_caught:
            stop = Stop.CANCELLED
        kept = (*sequence.tokens[start:][: checker.kept()], *checker.tail())
        sequence.tokens[start:] = kept
        return Extension(tokens=kept, logprobs=(-0.5,) * len(kept), stop=stop, generated=generated)

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        sequence = self._idle(seq)
        last = max((*params.reward_at, len(sequence.tokens) - 1 if params.logprobs_from is not None else 0))
        start = sequence.paid_rows
        heads = tuple(p for p in params.reward_at if p not in sequence.paid_heads)
        work = Work(sequence.model, WorkKind.SCORE, start, max(0, last + 1 - start), heads)
        if not await self._granted(meter, work):
            return Scores(refused=True)
        await anyio.lowlevel.checkpoint()
        meter.commit(work)
        sequence.paid_rows = max(sequence.paid_rows, last + 1)
        sequence.paid_heads.update(heads)
        reward = self._rewards.get(sequence.model, lambda text: 0.5)
        text = self.models[sequence.model].tokenizer.decode(sequence.tokens)
        begin = params.logprobs_from
        logprobs = () if begin is None else (-0.5,) * (len(sequence.tokens) - begin)
        return Scores(rewards=tuple(reward(text[: p + 1]) for p in params.reward_at), logprobs=logprobs)

    def _work(self, sequence: _Sequence) -> Work:
        known = len(sequence.tokens)
        rows = known - sequence.paid_rows
        heads = () if known - 1 in sequence.paid_heads else (known - 1,)
        kind = WorkKind.PREFILL if rows > 1 else WorkKind.DECODE
        return Work(sequence.model, kind, sequence.paid_rows, rows, heads, tokens=1)

    async def _granted(self, meter: Meter, work: Work) -> bool:
        while True:
            notified = self._notified
            verdict = meter.grant(work)
            if verdict is Verdict.GRANTED:
                return True
            if verdict is Verdict.REFUSED:
                await anyio.lowlevel.checkpoint()
                return False
            if notified.is_set():
                self._notified = anyio.Event()
            with anyio.move_on_after(0.002):
                await self._notified.wait()

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
            tokenizer=CharTokenizer(),
            profile=self._profile,
            sampling=SamplingParams(),
            weights_digest="",
        )

    def _add(self, sequence: _Sequence) -> SeqId:
        self._next += 1
        handle = SeqId(self._next)
        self._sequences[handle] = sequence
        return handle

    def _idle(self, seq: SeqId) -> _Sequence:
        if seq not in self._sequences:
            raise HandleError(f"sequence {seq}: released or unknown")
        sequence = self._sequences[seq]
        if sequence.running is not None:
            raise HandleError(f"sequence {seq}: busy")
        return sequence


def following(plan: Callable[[str, int], str], prompt_length: int) -> Script:
    """A script from the whole text that a branch of that prompt and seed writes."""

    def script(text: str, seed: int) -> str:
        whole = plan(text[:prompt_length], seed)
        return whole[len(text) - prompt_length :]

    return script
