"""What passes between a draft model's draw and the row that verifies it. No torch here."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Distribution(Protocol):
    """Probabilities by token id, summing to 1: an fp32 tensor [vocab] of the model that drew from it. Only
    the sampler looks inside."""

    def __len__(self) -> int: ...


class Proposal(NamedTuple):
    """A drafted token, and the distribution `q` that it was drawn from; None is a point mass: the token was
    chosen without chance."""

    token: int
    q: Distribution | None = None


class Drafting(NamedTuple):
    """How a draft model draws. `own_noise`: for the ratio test, with noise apart from the target's, and its
    distribution comes back; else with the target's noise. `runners_up`: so many of the tokens that lost."""

    own_noise: bool = False
    runners_up: int = 0


class Drafted(NamedTuple):
    """What a draw with `Drafting` tells beside its token."""

    q: Distribution | None = None
    runners_up: Sequence[int] = ()
