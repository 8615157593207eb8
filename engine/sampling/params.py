"""How a token is drawn from a row of logits."""

from typing import Annotated

import msgspec
from msgspec import Meta


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Temperature 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 leave the distribution whole.

    Filters apply in the order temperature, top-k, top-p, min-p; each keeps at least the most likely token, so
    `top_p` 0 and `top_k` 1 equal greedy.
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


GREEDY = SamplingParams(temperature=0.0)
