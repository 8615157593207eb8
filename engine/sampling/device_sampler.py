"""From rows of logits to tokens on a GPU: the draws of all rows in one launch, one transfer to the host."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...kernels.dispatch import make_device_drawing
from ...kernels.drawn import RowParameters
from ...kernels.noise import Purpose, row_keys
from ..models.fused import FusedRows
from .drafting import Drafted
from .ratio import speculative_draw
from .sampler import Drawing, NoToken, Sampler, Token, result_of
from .stats import Sureness
from .target import Draw, Target
from .telling import Rows, told
from .transforms import distribution, is_greedy, is_plain

if TYPE_CHECKING:
    from ...kernels.triton_drawing import TritonDrawing


def make_sampler(vocab_size: int, device: torch.device) -> Drawing:
    """What draws the tokens of one model on `device`."""
    drawing = make_device_drawing(device)
    return Sampler(vocab_size, device) if drawing is None else DeviceSampler(vocab_size, device, drawing)


class DeviceSampler:
    """Implements `Drawing` for one model, with the tokens that `Sampler` draws. Not thread-safe; used by the
    engine thread only."""

    def __init__(self, vocab_size: int, device: torch.device, drawing: "TritonDrawing") -> None:
        self._vocab = torch.arange(vocab_size, dtype=torch.int32, device=device)
        self._target = Target(vocab_size, device)
        self._drawing = drawing

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[Token | NoToken]:
        """See `Drawing.draw`."""
        if not draws:
            return []
        rows = [draw.row for draw in draws]
        if rows != list(range(logits.shape[0])):
            logits = logits.index_select(0, torch.tensor(rows, device=logits.device))
        target, parameters = self._target.rows(logits, draws), _parameters(draws)
        found = self._drawing.draw(target, parameters)
        # Statistics are of the raw rows: where rules changed one, those are read once more.
        raw = found if target is logits else self._drawing.draw(logits, parameters.whole())
        tokens = found.tokens.long()
        told_of = self._speculate(target, draws, tokens)
        places = tokens[:, None]
        logprobs = logits.gather(-1, places)[:, 0] - raw.lse
        scores = target.gather(-1, places)[:, 0]
        rows_of = Rows(logits, raw.lse, target, Sureness(raw.entropy, raw.certainty))
        details = told(rows_of, [draw.params for draw in draws], tokens)
        columns = torch.stack((tokens.double(), logprobs.double(), scores.double())).tolist()
        return [
            result_of(draw, int(token), logprob, score, detail, drafted)
            for draw, token, logprob, score, detail, drafted in zip(
                draws, *columns, details, told_of, strict=True
            )
        ]

    def draw_fused(
        self, head: FusedRows | None, hidden: Tensor, rows: Sequence[int], draws: Sequence[Draw]
    ) -> list[Token | NoToken] | None:
        """`draw` without logits, from `rows` of `hidden`, the rows that the draws count by; None where that
        cannot be: many rows, several draws of one row, or a draw that something narrows, changes or asks
        about."""
        if head is None or not len(draws) == len(rows) <= head.most_draws or not all(map(_is_bare, draws)):
            return None
        sent = self._drawing.send(_parameters(draws))
        chosen = torch.tensor([rows[draw.row] for draw in draws]).to(hidden.device)
        found = head.draw(hidden.index_select(0, chosen), sent.temperature, sent.keys)
        tokens, logprobs = torch.stack((found.tokens.double(), found.logprobs.double())).tolist()
        pairs = zip(draws, tokens, logprobs, strict=True)
        return [result_of(draw, int(token), logprob, logprob) for draw, token, logprob in pairs]

    def _speculate(self, target: Tensor, draws: Sequence[Draw], tokens: Tensor) -> list[Drafted | None]:
        """Replace the tokens of draws with a proposal to test, and of a draft model's draws; what the latter
        tell."""
        told_of: list[Drafted | None] = [None] * len(draws)
        tested: dict[bool, list[int]] = {}
        for index, draw in enumerate(draws):
            if draw.drafting is not None:
                tokens[index], told_of[index] = speculative_draw(target[index], draw, self._vocab)
            elif draw.proposal is not None:
                tested.setdefault(draw.proposal[1] is None, []).append(index)
        for members in tested.values():
            where = torch.tensor(members).to(tokens.device)
            tokens[where] = self._test(target, [draws[index] for index in members], members).long()
        return told_of

    def _test(self, target: Tensor, draws: Sequence[Draw], rows: Sequence[int]) -> Tensor:
        """The ratio test of draws whose proposals all have a distribution, or none, on `rows` of the
        target."""
        p = torch.stack(
            [distribution(target[row], draw.params) for row, draw in zip(rows, draws, strict=True)]
        )
        proposals = [draw.proposal for draw in draws if draw.proposal is not None]
        drawn_from = [q for _, q in proposals if isinstance(q, Tensor)]
        q = torch.stack(drawn_from).to(p.device) if drawn_from else None
        keys = partial(row_keys, [draw.seed for draw in draws], [draw.position for draw in draws])
        return self._drawing.test(p, q, [token for token, _ in proposals], keys)


def _parameters(draws: Sequence[Draw]) -> RowParameters:
    params = [draw.params for draw in draws]
    return RowParameters(
        keys=row_keys([draw.seed for draw in draws], [draw.position for draw in draws], Purpose.TOKEN),
        temperature=[0.0 if is_greedy(one) else one.temperature for one in params],
        top_k=[0 if is_greedy(one) else one.top_k for one in params],
        top_p=[1.0 if is_greedy(one) else one.top_p for one in params],
        min_p=[0.0 if is_greedy(one) else one.min_p for one in params],
    )


def _is_bare(draw: Draw) -> bool:
    ruled = draw.rules is not None and draw.rules.changes(draw.position)
    speculating = draw.proposal is not None or draw.drafting is not None
    plain = is_greedy(draw.params) or is_plain(draw.params)
    return plain and not (ruled or speculating or draw.params.tells)
