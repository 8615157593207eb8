"""One extension in progress on a remote server."""

from collections.abc import Callable, Sequence

from ..protocol import ExtendParams, Extension, ModelInfo
from ..sampling.detail import Alternatives, TokenStats
from ..text.stop import Stop, StopChecker
from .constrained import FREE, Constrained, Narrowed
from .lease import Lease
from .reading import Arrived, confidence_of
from .sequence import RemoteSequence


class Writing:
    """What an extension gained so far, and whether its stop rule holds."""

    def __init__(
        self,
        sequence: RemoteSequence,
        params: ExtendParams,
        info: ModelInfo,
        on_tokens: Callable[[Sequence[int]], None] | None,
    ) -> None:
        self.params = params
        self.info = info
        self.generated = 0
        self.stop: Stop | None = None
        self.constrained: Constrained | None = None
        if params.constraint is not None:
            detailed = params.sampling.stats_top_k > 0 or params.sampling.top_logprobs > 0
            self.constrained = Constrained(
                params.constraint, sequence.tokens, info.vocab_size, detailed=detailed
            )
        self._sequence = sequence
        self._start = len(sequence.tokens)
        self._checker = StopChecker(params.stop, info.profile, info.tokenizer, sequence.tokens)
        self._on_tokens = on_tokens
        self._arrived: list[Arrived] = []

    @property
    def limit(self) -> Stop | None:
        """The limit that leaves no room for a token, if one does."""
        if self.generated >= self.params.max_tokens:
            return Stop.LENGTH
        return Stop.CONTEXT if len(self._sequence.tokens) >= self.info.max_model_len else None

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        left = self.info.max_model_len - len(self._sequence.tokens)
        return min(left, self.params.max_tokens - self.generated)

    @property
    def narrowed(self) -> Narrowed:
        """What the next request is kept to."""
        return FREE if self.constrained is None else self.constrained.narrowed

    @property
    def redraws(self) -> bool:
        """Whether a token that does not fit was dropped, and is drawn again by the next request."""
        return self.constrained is not None and self.constrained.redraws

    def without_schema(self) -> None:
        """The server takes none: it writes freely."""
        if self.constrained is not None:
            self.constrained.without_schema()

    def take(self, arrived: Arrived, lease: Lease) -> None:
        """Put a token on the sequence; `stop` says why the extension ends with it, if it does."""
        lease.use(arrived.token)
        self.generated += 1
        self._arrived.append(arrived)
        if self._on_tokens is not None:
            self._on_tokens((arrived.token,))
        self.stop = self._checker.push(arrived.token)
        if self.constrained is not None:
            self.constrained.push(arrived.token)
            if self.stop is None and self.constrained.finished:
                self.stop = Stop.ANSWER

    def end(self, stop: Stop) -> Extension:
        """Drop the stop string, and sum up."""
        kept = self._checker.kept()
        if kept < self.generated:
            self._sequence.truncate(self._start + kept)
            self._sequence.append(self._checker.tail())
        arrived = self._arrived[:kept]
        logprobs = [one.logprob for one in arrived if one.logprob is not None]
        alternatives = [one.alternatives for one in arrived if one.alternatives is not None]
        told, detailed = len(logprobs) == kept, len(alternatives) == kept
        sampling = self.params.sampling
        return Extension(
            tokens=tuple(self._sequence.tokens[self._start :]),
            logprobs=tuple(logprobs) if told else (),
            stop=stop,
            generated=self.generated,
            alternatives=_cut(alternatives, sampling.top_logprobs) if detailed else (),
            stats=_stats(alternatives, sampling.stats_top_k) if detailed else (),
        )


def _cut(alternatives: Sequence[Alternatives], count: int) -> tuple[Alternatives, ...]:
    if not count:
        return ()
    return tuple(Alternatives(one.ids[:count], one.logprobs[:count]) for one in alternatives)


def _stats(alternatives: Sequence[Alternatives], k: int) -> tuple[TokenStats, ...]:
    return tuple(confidence_of(one, k) for one in alternatives) if k else ()
