"""The oracle model: the next token is a hash of the whole prefix, read slot by slot through the block table.

One stale, missing or misplaced block changes the output or raises. It runs every scheduler, cache, fork,
preemption and cancel test without torch. `NaiveEngine` computes the same from the tokens alone.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b

from branchwise.engine.protocol import ExtendParams, ModelCost, ModelInfo, SeqId
from branchwise.engine.sampling.counts import TokenCounts
from branchwise.engine.sampling.drafting import Distribution, Drafted
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import (
    TRASH_BLOCK,
    Drawn,
    ModelPlan,
    ModelResult,
    NotDrawn,
    Sample,
    Span,
    SpanScores,
)
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, StopRule

from .sampling import log_softmax, target_logits, token_detail

VOCAB = 50
EOS = 0


class StaleReadError(AssertionError):
    """A row read KV that was never written, or that belongs to other tokens."""


class CountingTokenizer:
    """Ids are their own text; enough for a model info."""

    vocab_size = VOCAB

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    def chat(self, messages: object, *, think: bool | None = None) -> list[int]:
        raise NotImplementedError

    def token_id(self, text: str) -> int | None:
        return int(text)

    def piece(self, token: int) -> bytes:
        return f" {token}".encode()


def oracle_info(
    name: str = "policy", *, max_model_len: int = 4096, head: str = "lm", digest: str = "oracle"
) -> ModelInfo:
    return ModelInfo(
        name=name,
        source="oracle",
        head=head,
        vocab_size=VOCAB,
        max_model_len=max_model_len,
        cost=ModelCost(block_params=1000, layers=2, attention_width=8, hidden=8, head_columns=VOCAB),
        tokenizer=CountingTokenizer(),
        profile=ModelProfile(stop_ids=frozenset({EOS})),
        sampling=SamplingParams(),
        weights_digest=digest,
    )


class IdStopWatch:
    """The stop rule on ids alone: eos ids, `tokens_per_step`, and stop strings read as space-separated
    ids.
    """

    def __init__(
        self, rule: StopRule, profile: object, tokenizer: object, context_ids: Sequence[int]
    ) -> None:
        self._rule = rule
        self._tokens: list[int] = []
        self._dropped = 0
        self._strings = [tuple(int(word) for word in text.split()) for text in rule.strings]

    def push(self, token: int) -> Stop | None:
        self._tokens.append(token)
        if token in self._rule.eos_ids:
            return Stop.EOS
        for string in self._strings:
            if tuple(self._tokens[-len(string) :]) == string:
                self._dropped = len(string)
                return Stop.STOP
        if self._rule.tokens_per_step is not None and len(self._tokens) >= self._rule.tokens_per_step:
            return Stop.MARK
        return None

    def kept(self) -> int:
        return len(self._tokens) - self._dropped

    def tail(self) -> tuple[int, ...]:
        return ()


class Row:
    """Logits of the row that ends the prefix `tokens`: each is a hash of the prefix and of the token."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tuple(tokens)
        prefix = self._prefix = prefix_digest(tokens)
        self.logits = [
            4.0 * int.from_bytes(blake2b(prefix, digest_size=4, key=bytes([token])).digest()) / 2**32
            for token in range(VOCAB)
        ]
        self._logprobs = log_softmax(self.logits)

    def logprob(self, token: int) -> float:
        return self._logprobs[token]

    def reward(self) -> float:
        return int.from_bytes(blake2b(self._prefix, digest_size=4, key=b"reward").digest()) / 2**32

    def target(self, params: SamplingParams, prompt_length: int, end_ids: Collection[int]) -> list[float]:
        """The logits that a request on this prefix draws from."""
        return target_logits(self.logits, params, self.tokens, prompt_length, end_ids)

    def draw(self, target: Sequence[float], seed: int, position: int, params: SamplingParams) -> int:
        """Gumbel argmax with noise that is a pure function of (seed, position, token)."""
        if params.temperature == 0:
            return max(range(VOCAB), key=lambda token: target[token])
        return max(
            range(VOCAB),
            key=lambda token: target[token] / params.temperature + _gumbel(seed, position, token),
        )


def _gumbel(seed: int, position: int, token: int, purpose: str = "") -> float:
    return -math.log(-math.log(_uniform(seed, position, token, purpose)))


def _uniform(seed: int, position: int, token: int, purpose: str) -> float:
    packed = struct.pack("<Qii", seed % 2**64, position, token)
    return (int.from_bytes(blake2b(packed, digest_size=4, key=purpose.encode()).digest()) + 0.5) / 2**32


def prefix_digest(tokens: Sequence[int]) -> bytes:
    return blake2b(struct.pack(f"<{len(tokens)}i", *tokens), digest_size=16).digest()


class OracleRunner:
    """A runner whose KV slots hold (token, position) canaries. The trash block is poisoned: reading it
    raises.

    Counts what it really did: `rows` computed and `samples` drawn, per sequence seed and in all.
    `before_step` may raise, to inject a failure; `after_writes` may too, which leaves half-written slots
    behind; `mangle` may change what is returned.
    """

    def __init__(self, num_blocks: int = 64, block_size: int = 4) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.slots: list[tuple[int, int] | None] = [None] * (num_blocks * block_size)
        self.kept: dict[SeqId, Row] = {}
        self.rows = 0
        self.copies: list[tuple[int, int]] = []
        self.samples: Counter[int] = Counter()
        self.row_positions: Counter[tuple[bytes, int]] = Counter()
        self.steps = 0
        self.largest_step = 0
        self.before_step: Callable[[ModelPlan], None] = lambda plan: None
        self.after_writes: Callable[[ModelPlan], None] = lambda plan: None
        self.mangle: Callable[[ModelResult], ModelResult] = lambda result: result

    def execute(self, plan: ModelPlan) -> ModelResult:
        self.before_step(plan)
        self.steps += 1
        for copy in plan.copies:
            self._copy(copy.source, copy.target)
        for seq in plan.forget:
            self.kept.pop(seq, None)
        for span in plan.spans:
            self._write(span)
        self.after_writes(plan)
        found: list[Drawn | NotDrawn] = []
        scores: list[SpanScores] = []
        for span in plan.spans:
            self._run_span(span, found, scores)
        found.extend(self._draw(self.kept[kept.source], kept.sample) for kept in plan.kept_samples)
        self.largest_step = max(self.largest_step, sum(len(span.tokens) for span in plan.spans))
        return self.mangle(
            ModelResult(
                drawn=tuple(one for one in found if isinstance(one, Drawn)),
                not_drawn=tuple(one for one in found if isinstance(one, NotDrawn)),
                scores=tuple(scores),
            )
        )

    def _copy(self, source: int, target: int) -> None:
        assert TRASH_BLOCK not in (source, target)
        size = self.block_size
        self.slots[target * size : (target + 1) * size] = self.slots[source * size : (source + 1) * size]
        self.copies.append((source, target))

    def _write(self, span: Span) -> None:
        size = self.block_size
        assert span.tokens
        for offset, token in enumerate(span.tokens):
            position = span.start + offset
            if position < span.write_from:
                continue
            block = span.blocks[position // size]
            assert block != TRASH_BLOCK
            self.slots[block * size + position % size] = (token, position)

    def _run_span(self, span: Span, found: list[Drawn | NotDrawn], scores: list[SpanScores]) -> None:
        end = span.start + len(span.tokens)
        prefix = self._read(span, end)
        self.rows += len(span.tokens)
        for position in range(span.start, end):
            self.row_positions[prefix_digest(prefix[: position + 1]), position] += 1
        found.extend(self._draw(Row(prefix[: sample.position]), sample) for sample in span.samples)
        if span.keep_logits:
            self.kept[span.seq] = Row(prefix)
        if span.reward_at or span.logprob_at:
            rows = {p: Row(prefix[: p + 1]) for p in {*span.reward_at, *span.logprob_at}}
            rewards = tuple(rows[position].reward() for position in span.reward_at)
            pairs = zip(span.logprob_at, span.targets, strict=True)
            logprobs = tuple(rows[position].logprob(target) for position, target in pairs)
            scores.append(SpanScores(span.seq, rewards, logprobs))

    def _read(self, span: Span, end: int) -> list[int]:
        """The prefix as it stands in the slots; raises where a slot was not written for that position."""
        size, prefix = self.block_size, []
        for position in range(end):
            block = span.blocks[position // size]
            slot = self.slots[block * size + position % size]
            if block == TRASH_BLOCK or slot is None or slot[1] != position:
                raise StaleReadError(f"sequence {span.seq} position {position} block {block} holds {slot}")
            prefix.append(slot[0])
        if prefix[span.start :] != list(span.tokens):
            raise StaleReadError(f"sequence {span.seq} rows {span.tokens} stand as {prefix[span.start :]}")
        return prefix

    def _draw(self, row: Row, sample: Sample) -> Drawn | NotDrawn:
        self.samples[sample.seed] += 1
        params, rules = sample.params, sample.rules
        target = row.logits
        if rules is not None:
            prompt_length = rules.first_end - params.min_tokens
            if rules.penalties is not None:
                _check_counts(rules.penalties.behind(sample.drafted).counts, row.tokens, prompt_length)
            target = row.target(params, prompt_length, rules.end_ids.tolist())
        token, drafted = speculative_token(target, sample) or (
            row.draw(target, sample.seed, sample.position, params),
            None,
        )
        if target[token] == -math.inf:
            return NotDrawn(sample.seq, "nothing is left to draw", node=sample.node)
        detail = token_detail(row.logits, target, token, params)
        return Drawn(sample.seq, token, row.logprob(token), detail, sample.node, drafted)


def speculative_token(target: Sequence[float], sample: Sample) -> tuple[int, Drafted | None] | None:
    """What a draft model draws, or what the ratio test of a proposal gives, by the definitions; None for any
    other sample."""
    p, seed, place = probabilities(target, sample.params), sample.seed, sample.position
    if sample.drafting is not None:
        own = sample.drafting.own_noise
        noise = [_gumbel(seed, place, token, "draft" if own else "") for token in range(VOCAB)]
        greedy = sample.params.temperature == 0
        scores = target if greedy else [_log(x) + g for x, g in zip(p, noise, strict=True)]
        best = sorted(range(VOCAB), key=lambda token: -scores[token])
        return best[0], Drafted(p if own else None, best[1 : 1 + sample.drafting.runners_up])
    if sample.proposal is None:
        return None
    x, q = sample.proposal
    drafted = [float(token == x) for token in range(VOCAB)] if q is None else _floats(q)
    if _uniform(seed, place, 0, "accept") * drafted[x] < p[x]:
        return x, None
    residual = [max(0.0, a - b) for a, b in zip(p, drafted, strict=True)]
    weights = residual if any(residual) else p
    noise = [_gumbel(seed, place, token, "residual") for token in range(VOCAB)]
    return max(range(VOCAB), key=lambda token: _log(weights[token]) + noise[token]), None


def probabilities(target: Sequence[float], params: SamplingParams) -> list[float]:
    """Of the filters, only temperature is known here."""
    if params.temperature == 0:
        best = max(range(VOCAB), key=lambda token: target[token])
        return [float(token == best) for token in range(VOCAB)]
    return [math.exp(x) for x in log_softmax([x / params.temperature for x in target])]


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def _floats(q: Distribution) -> list[float]:
    assert isinstance(q, list)
    return q


def _check_counts(counts: TokenCounts, tokens: Sequence[int], prompt_length: int) -> None:
    """The counts that came by reference are those of the prefix that stands in the KV."""
    behind = Counter(tokens[prompt_length:])
    right = {token: (times, behind[token]) for token, times in Counter(tokens).items()}
    if counts.standing() != right:
        raise StaleReadError(f"counts are {counts.standing()}; the prefix has {right}")


class NaiveEngine:
    """Recomputes everything from the tokens: what each verb must give, whatever the real engine shares or
    evicts.
    """

    @staticmethod
    def draws(
        tokens: Sequence[int], seed: int, params: ExtendParams, prompt_length: int | None = None
    ) -> Iterator[tuple[int, float]]:
        """Each next token and its log-probability, whatever ends the extension; of `tokens` the first
        `prompt_length`, all without it, are the prompt."""
        known = list(tokens)
        prompt = len(known) if prompt_length is None else prompt_length
        while True:
            row = Row(known)
            target = row.target(params.sampling, prompt, params.stop.eos_ids)
            token = row.draw(target, seed, len(known), params.sampling)
            known.append(token)
            yield token, row.logprob(token)

    @staticmethod
    def extend(
        tokens: list[int], seed: int, params: ExtendParams, max_len: int, prompt_length: int | None = None
    ) -> tuple[list[int], list[float], Stop]:
        """The tokens kept, their log-probabilities and why it ended; `tokens` is left as it was."""
        watch = IdStopWatch(params.stop, None, None, tokens)
        added: list[int] = []
        logprobs: list[float] = []
        if params.max_tokens <= 0:
            return [], [], Stop.LENGTH
        stop = Stop.CONTEXT if len(tokens) >= max_len else None
        draws = NaiveEngine.draws(tokens, seed, params, prompt_length)
        while stop is None:
            token, logprob = next(draws)
            added.append(token)
            logprobs.append(logprob)
            stop = watch.push(token)
            if stop is None and len(added) >= params.max_tokens:
                stop = Stop.LENGTH
            if stop is None and len(tokens) + len(added) >= max_len:
                stop = Stop.CONTEXT
        kept = watch.kept() if added else 0
        return added[:kept], logprobs[:kept], stop

    @staticmethod
    def logprobs(tokens: Sequence[int], start: int) -> list[float]:
        return [Row(tokens[:position]).logprob(tokens[position]) for position in range(start, len(tokens))]

    @staticmethod
    def rewards(tokens: Sequence[int], positions: Sequence[int]) -> list[float]:
        return [Row(tokens[: position + 1]).reward() for position in positions]
