"""How a token is drawn from a row of logits, and what is told about it."""

from typing import Annotated

from msgspec import Meta, field

from ..checked import Checked

TokenId = Annotated[int, Meta(ge=0)]
Bias = Annotated[float, Meta(le=100.0)]


class SamplingParams(Checked, frozen=True, kw_only=True):
    """Temperature 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 leave the distribution whole.

    Transforms apply in this order: `logit_bias`, `allowed_tokens`, penalties, `min_tokens`, temperature,
    top-k, top-p, min-p. Each of the last three keeps at least the most likely token, so `top_p` 0 and `top_k`
    1 equal greedy; among equal logits the lowest id counts as the more likely.

    - `logit_bias` is added to the logits of the ids that it names; minus infinity bans one.
    - `allowed_tokens`: only these ids can be drawn; None allows all.
    - `repetition_penalty` (Keskar et al. 2019) divides a positive logit and multiplies a negative one, for
      every token that stands on the sequence, prompt included. `presence_penalty` is subtracted once, and
      `frequency_penalty` once per occurrence, for the tokens behind the prompt (sampled or appended). A fork
      inherits the counts, a truncation takes them back.
    - `min_tokens`: no end id (`StopRule.eos_ids`) can be drawn before so many tokens stand behind the prompt.

    What else is returned with each token:

    - `processed_logprobs`: its log-probability in the distribution that it was drawn from (0 when greedy).
    - `top_logprobs`: so many alternatives with their raw log-probabilities.
    - `stats_top_k`: with k > 0, `TokenStats` of the raw row, its confidence over the k most likely tokens.

    Raises `UsageError` in one line for a value out of range.
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=100.0)] = 1.0
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] = 0.0
    logit_bias: dict[TokenId, Bias] = field(default_factory=dict)
    allowed_tokens: Annotated[tuple[TokenId, ...], Meta(min_length=1)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    processed_logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=1000)] = 0
    stats_top_k: Annotated[int, Meta(ge=0, le=1000)] = 0

    @property
    def penalises(self) -> bool:
        """Whether what stands on the sequence changes its next token's logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def tells(self) -> bool:
        """Whether more than the raw log-probability is asked for."""
        return self.processed_logprobs or self.top_logprobs > 0 or self.stats_top_k > 0


GREEDY = SamplingParams(temperature=0.0)
