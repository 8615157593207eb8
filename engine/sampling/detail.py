"""What is told about a token besides its id and raw log-probability. No torch here."""

from typing import NamedTuple


class TokenStats(NamedTuple):
    """How sure the model was, from the raw row of V logits (temperature 1, nothing masked), in nats.

    With p = softmax of the row:
    - `entropy` is -sum(p ln p), 0 when sure.
    - `self_certainty` is KL(uniform || p) = -1/V sum ln(V p), 0 when p is flat, infinite where a token is
      impossible (Kang et al. 2025, arXiv 2502.18581).
    - `confidence` is -1/k sum ln p over the k most likely tokens, larger when surer; k is
      `SamplingParams.stats_top_k`, at most V (DeepConf, Fu et al. 2025, arXiv 2508.15260).
    """

    entropy: float
    self_certainty: float
    confidence: float


class Alternatives(NamedTuple):
    """The most likely tokens of the raw row, falling, and their raw natural-log probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class TokenDetail(NamedTuple):
    """What `SamplingParams` asked to be told about a token; None for what it did not ask for."""

    processed_logprob: float | None
    alternatives: Alternatives | None
    stats: TokenStats | None
