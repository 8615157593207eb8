"""From rows of logits to tokens, with counter noise.

The largest `exp(score) / exponential noise` is a draw from `softmax(score)`: the Gumbel-max trick, one
logarithm cheaper. The noise depends on the branch's seed and the position alone, so a branch draws the same
token from the same logits in any batch. After top-k, top-p or min-p, noise is drawn only for the tokens that
they left.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from ...kernels.dispatch import make_drawing
from ...kernels.noise import Purpose, exponential, row_keys
from .detail import TokenDetail
from .drafting import Drafted
from .ratio import speculative_draw
from .target import Draw, Target
from .telling import Rows, told
from .transforms import filtered, is_greedy, is_plain, tempered

_CACHED_VALUES = 1 << 16
"""Values of fp32 that stay in a core's cache from one pass over them to the next."""


class Token(msgspec.Struct, frozen=True, gc=False):
    """A drawn id and its natural-log probability under the raw row (temperature 1, nothing masked)."""

    id: int
    logprob: float
    detail: TokenDetail | None = None
    drafted: Drafted | None = None


class NoToken(msgspec.Struct, frozen=True, gc=False):
    """Nothing can be drawn from the row, and why; `finite` says whether the model's own logits were sound."""

    reason: str
    finite: bool = True


class Drawing(Protocol):
    """What draws a step's tokens."""

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[Token | NoToken]:
        """One result per draw, from the model's `logits` fp32 [rows, columns]."""
        ...


class Sampler:
    """Draws tokens for one model. Not thread-safe; used by the engine thread only."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab = torch.arange(vocab_size, dtype=torch.int32, device=device)
        self._target = Target(vocab_size, device)
        self._native = make_drawing(device)

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[Token | NoToken]:
        """One result per draw, from raw fp32 `logits` [rows, vocab], which are left as they are.

        One transfer brings all tokens to the host; details that were asked for take theirs.
        """
        if not draws:
            return []
        rows = [draw.row for draw in draws]
        normaliser = self._native.normaliser(logits) if self._native else logits.logsumexp(-1)
        if rows != list(range(logits.shape[0])):
            index = torch.tensor(rows, device=logits.device)
            logits, normaliser = logits.index_select(0, index), normaliser.index_select(0, index)
        target = self._target.rows(logits, draws)
        told_of: list[Drafted | None] = [None] * len(draws)
        tokens = self._tokens(target, draws, told_of)
        places = tokens[:, None]
        logprobs = logits.gather(-1, places)[:, 0] - normaliser
        scores = target.gather(-1, places)[:, 0]
        details = told(Rows(logits, normaliser, target), [draw.params for draw in draws], tokens)
        columns = torch.stack((tokens.double(), logprobs.double(), scores.double())).tolist()
        return [
            result_of(draw, int(token), logprob, score, detail, drafted)
            for draw, token, logprob, score, detail, drafted in zip(
                draws, *columns, details, told_of, strict=True
            )
        ]

    def _tokens(self, logits: Tensor, draws: Sequence[Draw], told_of: list[Drafted | None]) -> Tensor:
        """Drawn ids, int64 [draws]; `logits` has one row per draw. What a draft model's draw tells goes into
        `told_of`."""
        greedy, plain, narrow, speculating = [], [], [], []
        for index, draw in enumerate(draws):
            if draw.proposal is not None or draw.drafting is not None:
                speculating.append(index)
                continue
            kind = greedy if is_greedy(draw.params) else plain if is_plain(draw.params) else narrow
            kind.append(index)
        parts = ((greedy, _most_likely), (plain, self._draw_plain), (narrow, self._draw_filtered))
        for members, choose in parts:
            if len(members) == len(draws):
                return choose(logits, draws)
        tokens = torch.empty(len(draws), dtype=torch.int64, device=logits.device)
        for members, choose in parts:
            if members:
                index = torch.tensor(members, device=logits.device)
                tokens[index] = choose(logits.index_select(0, index), [draws[member] for member in members])
        for member in speculating:
            tokens[member], told_of[member] = speculative_draw(logits[member], draws[member], self._vocab)
        return tokens

    def _draw_plain(self, logits: Tensor, draws: Sequence[Draw]) -> Tensor:
        keys = _keys(draws, logits.device)
        if self._native:
            return self._native.tokens(logits, keys, [draw.params.temperature for draw in draws])
        scores = tempered(logits, [draw.params for draw in draws])
        if scores.numel() <= _CACHED_VALUES:
            return _race(scores, keys, self._vocab)
        # Row by row, so that a row stays in the cache through all passes over it.
        return torch.cat(
            [_race(scores[i : i + 1], keys[:, i : i + 1], self._vocab) for i in range(len(draws))]
        )

    def _draw_filtered(self, logits: Tensor, draws: Sequence[Draw]) -> Tensor:
        params = [draw.params for draw in draws]
        ids, scores = filtered(tempered(logits, params), params)
        place = _race(scores, _keys(draws, logits.device), ids.to(torch.int32))
        return ids.gather(-1, place[:, None])[:, 0]


def result_of(
    draw: Draw,
    token: int,
    logprob: float,
    score: float,
    detail: TokenDetail | None = None,
    drafted: Drafted | None = None,
) -> Token | NoToken:
    """`logprob` is of the raw row, `score` of the row that the token was drawn from."""
    if score == -math.inf and draw.rules is not None:
        left = (
            "logit_bias, allowed_tokens and min_tokens leave none; allow one more"
            if draw.rules.grammar is None
            else "rules and grammar leave none, or it is too large to keep to; allow one more, or simplify it"
        )
        return NoToken(f"no token can be drawn for position {draw.position}: {left}")
    if not math.isfinite(logprob):
        return NoToken(
            f"no token can be drawn for position {draw.position}: the model's logits are not finite numbers",
            finite=False,
        )
    return Token(token, logprob, detail, drafted)


def _race(scores: Tensor, keys: Tensor, tokens: Tensor) -> Tensor:
    """The column that wins in each row of `scores` [rows, n], which it overwrites: a draw from their
    softmax."""
    return scores.exp_().div_(exponential(keys, tokens)).argmax(-1)


def _most_likely(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    return logits.argmax(-1)


def _keys(draws: Sequence[Draw], device: torch.device) -> Tensor:
    keys = row_keys([draw.seed for draw in draws], [draw.position for draw in draws], Purpose.TOKEN)
    return keys.to(device)
