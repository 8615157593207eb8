"""Puts together what requests asked to be told about their tokens, for those that asked."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .detail import Alternatives, TokenDetail, TokenStats
from .params import SamplingParams
from .stats import Sureness, alternatives, completed_stats, token_stats
from .transforms import processed_logprobs


class Rows(NamedTuple):
    """One row per draw, fp32: `raw` logits [draws, vocab] with their logsumexp `normaliser` [draws], and the
    `target` [draws, vocab] that was drawn from; `sureness` [draws] of the raw rows where it is known."""

    raw: Tensor
    normaliser: Tensor
    target: Tensor
    sureness: Sureness | None = None


def told(rows: Rows, params: Sequence[SamplingParams], tokens: Tensor) -> list[TokenDetail | None]:
    """One entry per draw, None where nothing was asked for; `tokens` int64 [draws] were drawn."""
    if not any(one.tells for one in params):
        return [None] * len(params)
    processed = _processed(rows, params, tokens)
    leading = _alternatives(rows, params)
    stats = _stats(rows, params)
    return [
        TokenDetail(processed.get(draw), leading.get(draw), stats.get(draw)) if one.tells else None
        for draw, one in enumerate(params)
    ]


def _processed(rows: Rows, params: Sequence[SamplingParams], tokens: Tensor) -> dict[int, float]:
    asking = [draw for draw, one in enumerate(params) if one.processed_logprobs]
    if not asking:
        return {}
    index = torch.tensor(asking, device=tokens.device)
    some = [params[draw] for draw in asking]
    values = processed_logprobs(rows.target.index_select(0, index), some, tokens[index])
    return dict(zip(asking, values.tolist(), strict=True))


def _alternatives(rows: Rows, params: Sequence[SamplingParams]) -> dict[int, Alternatives]:
    asking = [draw for draw, one in enumerate(params) if one.top_logprobs]
    if not asking:
        return {}
    index = torch.tensor(asking, device=rows.raw.device)
    counts = [params[draw].top_logprobs for draw in asking]
    found = alternatives(rows.raw.index_select(0, index), rows.normaliser[index], counts)
    return dict(zip(asking, found, strict=True))


def _stats(rows: Rows, params: Sequence[SamplingParams]) -> dict[int, TokenStats]:
    asking = [draw for draw, one in enumerate(params) if one.stats_top_k]
    if not asking:
        return {}
    counts = [params[draw].stats_top_k for draw in asking]
    if rows.sureness is None:
        found = token_stats([rows.raw[draw] for draw in asking], counts)
    else:
        index = torch.tensor(asking, device=rows.raw.device)
        sureness = Sureness(*(values[index] for values in rows.sureness))
        found = completed_stats(sureness, rows.normaliser[index], rows.raw.index_select(0, index), counts)
    return dict(zip(asking, found, strict=True))
