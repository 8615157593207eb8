"""What a running extension sampled so far, besides the ids, which stand on the sequence."""

from collections.abc import Sequence

from ..protocol import Extension
from ..sampling.detail import TokenDetail
from ..text.stop import Stop
from .plan import Drawn


class Gains:
    """Raw log-probabilities of all sampled tokens, and their details where the request asked for some."""

    __slots__ = ("_details", "_logprobs")

    def __init__(self) -> None:
        self._logprobs: list[float] = []
        self._details: list[TokenDetail] = []

    def __len__(self) -> int:
        """Tokens sampled."""
        return len(self._logprobs)

    def add(self, found: Drawn) -> None:
        self._logprobs.append(found.logprob)
        if found.detail is not None:
            self._details.append(found.detail)

    def extension(self, tokens: tuple[int, ...], kept: int, stop: Stop) -> Extension:
        """The result: `tokens` stay, the first `kept` as they were sampled. Ids behind them are a part of the
        token in which a stop string began: the first of them carries the log-probability of the whole, and
        all of them its details."""
        sources = [min(place, kept) for place in range(len(tokens))] if self._details else []
        details = [self._details[source] for source in sources]
        processed = [one.processed_logprob for one in details if one.processed_logprob is not None]
        return Extension(
            tokens=tokens,
            logprobs=_whole_first(self._logprobs[: kept + 1], len(tokens)),
            stop=stop,
            generated=len(self),
            processed_logprobs=_whole_first(processed[: kept + 1], len(processed)),
            alternatives=tuple(one.alternatives for one in details if one.alternatives is not None),
            stats=tuple(one.stats for one in details if one.stats is not None),
        )


def _whole_first(logprobs: Sequence[float], count: int) -> tuple[float, ...]:
    """`count` log-probabilities whose sum is that of the tokens that they came from."""
    return (*logprobs[:count], *[0.0] * (count - len(logprobs)))
