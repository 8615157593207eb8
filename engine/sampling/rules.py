"""What one request does to its rows of logits before temperature and filters, prepared once per request."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ..text.grammar import GrammarState
from .counts import TokenCounts
from .params import SamplingParams


class Penalties(NamedTuple):
    """`SamplingParams`' three penalties, and the counts of the sequence that they apply to, which grow with
    it."""

    repetition: float
    presence: float
    frequency: float
    counts: TokenCounts

    def behind(self, drafted: tuple[int, ...]) -> "Penalties":
        """The penalties of a row that has `drafted` tokens more before it."""
        return self._replace(counts=self.counts.ahead(drafted)) if drafted else self


class RowRules(NamedTuple):
    """Ids are int64 arrays, `bias` is fp32 beside `bias_ids`. `end_ids` can be drawn for the positions from
    `first_end` on only. `grammar` is behind all that the sequence holds."""

    bias_ids: np.ndarray
    bias: np.ndarray
    allowed: np.ndarray | None
    penalties: Penalties | None
    end_ids: np.ndarray
    first_end: int
    grammar: GrammarState | None = None

    def holds_back(self, position: int) -> bool:
        """Whether end ids cannot be drawn for `position`."""
        return position < self.first_end and len(self.end_ids) > 0

    def changes(self, position: int) -> bool:
        """Whether the row that `position` is drawn from differs from the raw one."""
        always = len(self.bias_ids) > 0 or self.allowed is not None or self.penalties is not None
        return always or self.grammar is not None or self.holds_back(position)


def row_rules(
    params: SamplingParams,
    end_ids: Collection[int],
    prompt_length: int,
    counts: TokenCounts | None,
    grammar: GrammarState | None = None,
) -> RowRules | None:
    """The rules of a request on a sequence with that prompt; None where it draws from the raw rows.

    `counts` of the sequence are needed where `params.penalises`.
    """
    penalties = None
    if params.penalises:
        assert counts is not None
        penalties = Penalties(
            params.repetition_penalty, params.presence_penalty, params.frequency_penalty, counts
        )
    if not (params.logit_bias or params.allowed_tokens or penalties or params.min_tokens or grammar):
        return None
    return RowRules(
        bias_ids=np.array(list(params.logit_bias), np.int64),
        bias=np.array(list(params.logit_bias.values()), np.float32),
        allowed=None if params.allowed_tokens is None else np.array(params.allowed_tokens, np.int64),
        penalties=penalties,
        end_ids=np.array(sorted(end_ids), np.int64),
        first_end=prompt_length + params.min_tokens,
        grammar=grammar,
    )
