"""Executes what the scheduler planned for one model: copies, one ragged forward pass, scores and sampled
tokens."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.attention import HeadShape
from ...kernels.dispatch import make_attention
from ...kernels.linear import ROW_TILE
from ...kernels.tables import RowSpan
from ..errors import CapabilityError
from ..models.open import LoadedModel
from ..protocol import SeqId
from ..sampling.detail import Alternatives
from ..sampling.device_sampler import DeviceSampler, make_sampler
from ..sampling.sampler import Drawing, NoToken, Token
from ..sampling.stats import alternatives
from ..sampling.target import Draw
from ..sched.plan import Drawn, ModelPlan, ModelResult, NotDrawn, Sample, Span, SpanScores
from .cache import KvCache
from .current_device import on_device
from .passes import EagerPasses, Passes, step_rows
from .recorded import RecordedPasses, Recorder, make_recorder
from .side_stream import SideStream

_SCORE_ROWS = 256
_NO_OTHERS = Alternatives((), ())
"""Rows whose logits stand at once while log-probabilities are taken: bounds memory at 256 * vocabulary * 4
bytes."""


class _Packed(NamedTuple):
    """Spans in packing order and the packed index of each one's first row."""

    spans: list[Span]
    first_row: list[int]
    rows: int


class _ScoredToken(NamedTuple):
    """A given token's natural log-probability, and the likeliest tokens in its place."""

    logprob: float
    alternatives: Alternatives


class _Draws(NamedTuple):
    """What came of a step's samples, in their order."""

    drawn: tuple[Drawn, ...]
    not_drawn: tuple[NotDrawn, ...]


class Runner:
    """One model with its KV memory. Not thread-safe: the engine thread calls it.

    With `deterministic` a row's results are bitwise the same alone or in any batch, for any chunking of a
    prefill, with KV shared or not (design section 4, rule 11). `max_rows` is the largest number of rows of a
    step. `cache` is the KV memory of a runner that this one replaces; without it there is a new one.
    `recorder` records passes; None: on a GPU, CUDA graphs do.
    """

    def __init__(
        self,
        model: LoadedModel,
        num_blocks: int,
        *,
        block_size: int = 16,
        deterministic: bool = False,
        max_rows: int = 2048,
        cache: KvCache | None = None,
        sampler: Drawing | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._model = model
        self._decoder = model.decoder
        self._max_rows = max_rows
        self._row_tile = ROW_TILE if deterministic and model.decoder.needs_row_tile else None
        if deterministic and not model.decoder.fixed_rows:
            raise CapabilityError(
                f"model {model.info.source!r} runs through transformers, whose products depend on the batch: "
                "leave deterministic off, or use a model of the own decoder's families"
            )
        attention, device = model.decoder.shape, model.decoder.device
        shape = HeadShape(
            attention.heads,
            attention.kv_heads,
            attention.head_dim,
            block_size,
            num_blocks,
            scale=attention.scale,
            softcap=attention.softcap,
        )
        chunk = key_chunk(model.info.max_model_len, block_size)
        windows = set(attention.windows)
        with on_device(device):
            self.cache = cache or KvCache(attention, num_blocks, block_size, model.decoder.dtype, device)
            self._attention = make_attention(
                shape,
                chunk,
                windows,
                model.decoder.dtype,
                device,
                longest=model.info.max_model_len,
                max_rows=max_rows,
                deterministic=deterministic,
            )
            self._side = SideStream(device)
            self._passes = self._make_passes(make_recorder(device) if recorder is None else recorder)
            self._sampler = sampler or make_sampler(model.decoder.columns, device)
        # How a fused head computes a row depends on how many there are.
        draws = self._sampler
        self._fuser = draws if isinstance(draws, DeviceSampler) and not deterministic else None
        self._kept: dict[SeqId, Tensor] = {}

    def _make_passes(self, recorder: Recorder | None) -> Passes:
        parts = self._decoder, self.cache, self._attention, self._row_tile
        if recorder is None or not self._decoder.fixed_memory:
            return EagerPasses(*parts)
        return RecordedPasses(*parts, recorder=recorder, max_rows=self._max_rows)

    @property
    def model(self) -> LoadedModel:
        """The model that this runner executes."""
        return self._model

    @property
    def threads_leave_bits(self) -> bool:
        """Whether results are the same for any number of CPU threads."""
        return self._attention.grouped and not self._decoder.needs_row_tile

    def kept_logits(self, seq: SeqId) -> Tensor:
        """The row that `keep_logits` left under `seq`, fp32 [vocab]."""
        return self._kept[seq]

    def execute(self, plan: ModelPlan) -> ModelResult:
        """Run one step. `drawn` has the samples of spans first, in plan order, then the kept samples."""
        for seq in plan.forget:
            self._kept.pop(seq, None)
        with on_device(self._decoder.device), torch.inference_mode():
            if plan.copies:
                sources, targets = zip(*((copy.source, copy.target) for copy in plan.copies), strict=True)
                with self._side.work():
                    self.cache.copy(sources, targets)
            packed, hidden = self._forward(plan.spans)
            self._side.join()
            scores = self._scores(plan.spans, packed, hidden)
            drawn, not_drawn = self._draw(plan, packed, hidden)
            self._wipe_unsound_drafts(plan.spans, not_drawn)
            return ModelResult(drawn=drawn, scores=scores, not_drawn=not_drawn)

    def _forward(self, spans: Sequence[Span]) -> tuple[_Packed, Tensor]:
        """Hidden states of all rows, packed in the order that attention chose."""
        if not spans:
            return _Packed([], [], 0), torch.empty(0)
        ragged = [RowSpan(span.start, len(span.tokens), span.blocks) for span in spans]
        planned = self._attention.plan(ragged)
        packed = self._pack(spans, planned.order)
        self._clear_started(packed.spans)
        rows = step_rows(packed.spans, packed.rows, self.cache.block_size)
        self._side.join()
        return packed, self._passes.forward(rows, planned)

    def _pack(self, spans: Sequence[Span], order: Sequence[int]) -> _Packed:
        chosen = [spans[index] for index in order]
        first_row, rows = [], 0
        for span in chosen:
            first_row.append(rows)
            rows += len(span.tokens)
        if rows > self._max_rows:
            raise ValueError(f"a step of {rows} rows exceeds max_rows {self._max_rows}")
        return _Packed(chosen, first_row, rows)

    def _clear_started(self, spans: Sequence[Span]) -> None:
        if self._attention.masks_loads:
            return
        size = self.cache.block_size
        started = [
            block
            for span in spans
            for block in span.blocks[
                -(-max(span.start, span.write_from) // size) : -(-(span.start + len(span.tokens)) // size)
            ]
        ]
        if started:
            self.cache.clear(started)

    def _scores(self, spans: Sequence[Span], packed: _Packed, hidden: Tensor) -> tuple[SpanScores, ...]:
        """Rewards and log-probabilities of the spans that ask, in plan order."""
        asking = [span for span in spans if span.reward_at or span.logprob_at]
        if not asking:
            return ()
        first_row = {id(span): first for span, first in zip(packed.spans, packed.first_row, strict=True)}
        reward_rows, logprob_rows, targets, leading = [], [], [], []
        for span in asking:
            base = first_row[id(span)] - span.start
            reward_rows += [base + position for position in span.reward_at]
            logprob_rows += [base + position for position in span.logprob_at]
            targets += span.targets
            leading += [span.leading] * len(span.logprob_at)
        rewards = iter(self._rewards(hidden, reward_rows))
        logprobs = iter(self._logprobs(hidden, logprob_rows, targets, max(leading, default=0)))
        found: list[SpanScores] = []
        for span in asking:
            values = tuple(next(rewards) for _ in span.reward_at)
            told = [next(logprobs) for _ in span.logprob_at]
            others = [_first(one.alternatives, span.leading) for one in told] if span.leading else []
            found.append(SpanScores(span.seq, values, tuple(one.logprob for one in told), tuple(others)))
        return tuple(found)

    def _rewards(self, hidden: Tensor, rows: Sequence[int]) -> list[float]:
        """Sigmoid of the label head at `rows`; of two labels, the probability of the second. NaN where the
        head's value is not finite: a saturated sigmoid would hide an overflow."""
        if not rows:
            return []
        index = torch.tensor(rows, device=hidden.device)
        values = self._decoder.head(hidden.index_select(0, index), self._row_tile)
        values = values[:, 1] - values[:, 0] if values.shape[1] == 2 else values[:, 0]
        return values.double().sigmoid().where(values.isfinite(), math.nan).tolist()

    def _logprobs(
        self, hidden: Tensor, rows: Sequence[int], targets: Sequence[int], leading: int
    ) -> list[_ScoredToken]:
        """Natural-log probability of `targets` at `rows`, and the `leading` likeliest tokens there; with a
        head that writes logits, of a bounded number at a time."""
        head = self._decoder.fused_head
        if rows and head is not None and not leading:
            index, chosen = torch.tensor((rows, targets)).to(hidden.device)
            values = head.logprobs(hidden.index_select(0, index), chosen).tolist()
            return [_ScoredToken(value, _NO_OTHERS) for value in values]
        results: list[_ScoredToken] = []
        for first in range(0, len(rows), _SCORE_ROWS):
            part = slice(first, first + _SCORE_ROWS)
            index = torch.tensor(rows[part], device=hidden.device)
            logits = self._decoder.head(hidden.index_select(0, index), self._row_tile)
            chosen = logits.gather(-1, torch.tensor(targets[part], device=hidden.device)[:, None])[:, 0]
            normaliser = logits.logsumexp(-1)
            values = (chosen - normaliser).tolist()
            others = [_NO_OTHERS] * len(values)
            if leading:
                others = alternatives(logits.float(), normaliser.float(), [leading] * len(values))
            results += map(_ScoredToken, values, others)
        return results

    def _draw(self, plan: ModelPlan, packed: _Packed, hidden: Tensor) -> _Draws:
        """Sample the spans that ask and the kept rows; keep the rows that later steps sample from."""
        first_row = {id(span): first for span, first in zip(packed.spans, packed.first_row, strict=True)}
        samples: list[Sample] = []
        draws: list[Draw] = []
        parts: list[Tensor] = []
        keeping: dict[SeqId, int] = {}
        places: dict[int, int] = {}  # packed row -> its row of logits
        for span in plan.spans:
            base = first_row[id(span)] - span.start
            if span.keep_logits:
                last = base + span.start + len(span.tokens) - 1
                keeping[span.seq] = places.setdefault(last, len(places))
            for sample in span.samples:
                row = places.setdefault(base + sample.position - 1, len(places))
                samples.append(sample)
                draws.append(_draw_from(row, sample))
        if self._fuser is not None and draws and not (keeping or plan.kept_samples):
            found = self._fuser.draw_fused(self._decoder.fused_head, hidden, list(places), draws)
            if found is not None:
                return _sorted_out(samples, found)
        if places:
            logits = self._passes.head(hidden, list(places))
            parts.append(logits)
            for seq, row in keeping.items():
                self._kept[seq] = logits[row].clone()
        for row, kept in enumerate(plan.kept_samples, start=len(places)):
            parts.append(self._kept[kept.source][None])
            samples.append(kept.sample)
            draws.append(_draw_from(row, kept.sample))
        if not draws:
            return _Draws((), ())
        found = self._sampler.draw(parts[0] if len(parts) == 1 else torch.cat(parts), draws)
        return _sorted_out(samples, found)

    def _wipe_unsound_drafts(self, spans: Sequence[Span], not_drawn: Sequence[NotDrawn]) -> None:
        """Rows of a draft that are not finite leave nothing: their slots may be looked at, though masked,
        before they are written again."""
        unsound = {(found.seq, found.node) for found in not_drawn if not found.finite}
        for span in spans:
            rows = [one.position - 1 for one in span.samples if (one.seq, one.node) in unsound]
            if span.drafted and rows:
                self.clear_positions(span.blocks, rows)

    def clear_positions(self, blocks: Sequence[int], positions: Sequence[int]) -> None:
        """Zero keys and values at `positions` of the table `blocks`, in all layers."""
        size, shape, device = self.cache.block_size, self._decoder.shape, self._decoder.device
        where = torch.tensor([blocks[position // size] for position in positions])
        slots = self.cache.slots(where, torch.tensor(positions) % size).to(device)
        parts = (len(positions), 2 * shape.kv_heads, shape.head_dim)
        zeros = torch.zeros(parts, dtype=self._decoder.dtype, device=device)
        for layer in self.cache.blocks:
            self._attention.store(zeros, slots, layer)


def _first(found: Alternatives, count: int) -> Alternatives:
    return Alternatives(found.ids[:count], found.logprobs[:count])


def _draw_from(row: int, sample: Sample) -> Draw:
    return Draw(
        row,
        sample.seed,
        sample.position,
        sample.params,
        sample.rules,
        sample.drafted,
        sample.proposal,
        sample.drafting,
    )


def _sorted_out(samples: Sequence[Sample], found: Sequence[Token | NoToken]) -> _Draws:
    drawn: list[Drawn] = []
    not_drawn: list[NotDrawn] = []
    for sample, one in zip(samples, found, strict=True):
        if isinstance(one, NoToken):
            not_drawn.append(NotDrawn(sample.seq, one.reason, sample.node, one.finite))
        else:
            drawn.append(Drawn(sample.seq, one.id, one.logprob, one.detail, sample.node, one.drafted))
    return _Draws(tuple(drawn), tuple(not_drawn))


def key_chunk(max_model_len: int, block_size: int) -> int:
    """Keys per attention item: a sixteenth of the context, between 32 and 128, in whole blocks.

    Short items waste little on short contexts; long ones keep the number of merges of a long context small.
    """
    keys = min(max(max_model_len // 16, 32), 128)
    return -(-keys // block_size) * block_size
