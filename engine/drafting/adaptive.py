"""How many tokens are worth drafting: the length at which a step gains most tokens for its time."""

DECAY = 0.85
"""Weight of the past per verification: after 16 of them what was assumed at first weighs 0.07 of one."""

ASSUMED = 0.8
"""Acceptance per token that is assumed before anything was verified."""

PROBE_STEPS = 32
"""Steps without drafts after which a short one is tried again."""

RARE_PROBE_STEPS = 256
"""The same where a token costs more than a first acceptance could gain: the price may have been misjudged."""

PROBE_LENGTH = 2


def best_length(acceptance: float, price: float, most: int) -> int:
    """The k <= `most` with the largest (expected tokens) / (time) (Leviathan et al. 2022, section 3.3):
    (1 - a^(k+1)) / (1 - a) / (1 + k * price), 0 where no k beats plain decoding.

    `price` is the time of one draft token, drafting included, as a share of a plain step. No k beats it
    unless the acceptance exceeds the price.
    """
    best, best_gain = 0, 1.0
    tokens, chance = 1.0, 1.0
    for k in range(1, most + 1):
        chance *= acceptance
        tokens += chance
        gain = tokens / (1.0 + k * price)
        if gain > best_gain:
            best, best_gain = k, gain
    return best


class DraftLength:
    """The draft length of one sequence, from the acceptance that it met.

    A verification tries the draft's tokens up to the first that is not accepted; acceptance is the share of
    those tried that were accepted, older verifications counting less.
    """

    __slots__ = ("_accepted", "_idle", "_tried")

    def __init__(self) -> None:
        self._accepted = ASSUMED
        self._tried = 1.0
        self._idle = 0

    @property
    def acceptance(self) -> float:
        return self._accepted / self._tried

    def choose(self, most: int, price: float) -> int:
        """The length of the next draft, in 0 to `most`."""
        length = best_length(self.acceptance, price, most)
        if length:
            return length
        self._idle += 1
        if self._idle < (PROBE_STEPS if price < ASSUMED else RARE_PROBE_STEPS):
            return 0
        self._idle = 0
        return min(PROBE_LENGTH, most)

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft of `drafted` tokens gained `accepted`. A success is followed up at once."""
        self._accepted = DECAY * self._accepted + accepted
        self._tried = DECAY * self._tried + min(accepted + 1, drafted)
        if accepted:
            self._idle = PROBE_STEPS
