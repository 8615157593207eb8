"""The remote back end: branches whose tokens a server writes, under a meter that is asked here."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
import httpx2

from ..checked import whole_numbers
from ..errors import CapabilityError, ServerFailed, UsageError
from ..handles import fitting_tokens
from ..protocol import (
    Capabilities,
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelInfo,
    ScoreParams,
    Scores,
    SeqId,
)
from ..sched.request import cancelled_error
from ..text.stop import Stop
from ..token_lists import TokenLists
from .affinity import root_key
from .dictation import Dictation
from .folder import UNKNOWN_COST
from .lease import Lease
from .model import RemoteModel
from .request import check_sampling, salt_of, score_body
from .sequence import RemoteSequence
from .servers import ServerTrouble
from .writing import Writing

LEASE_TOKENS = 64
"""Tokens that one request may write: what a search can lose to a branch that ends early is asked back when
it ends, and a prefix is looked up on the server once in so many tokens."""
UNKNOWN = (
    "computed_flops",
    "copied_blocks",
    "kv_tokens",
    "kv_unshared_tokens",
    "kv_peak_tokens",
    "kv_unshared_peak_tokens",
    "preemptions",
)
"""Figures of `EngineUsage` that no server tells."""


class RemoteEngine(TokenLists[RemoteSequence]):
    """Implements `engine.protocol.Backend` over OpenAI-compatible servers. An async context manager.

    A branch is the list of its ids. Each request re-sends them, to the same server for all branches of a
    root, and relies on that server's prefix cache. It asks for as many tokens as the meter granted ahead, at
    most `lease_tokens`; they are committed as they stream in, and the request is closed when the extension
    ends or is cancelled. What did not come by then is refunded, although the server may have written a few
    tokens more: the meter counts what arrived. A failed request is tried again from the last token that came,
    which nobody pays for twice.
    """

    def __init__(
        self, models: Mapping[str, RemoteModel], http: httpx2.AsyncClient, *, lease_tokens: int = LEASE_TOKENS
    ) -> None:
        super().__init__()
        if lease_tokens < 1:
            raise UsageError(f"lease_tokens is {lease_tokens}; it must be at least 1")
        self._hosted = dict(models)
        self._http = http
        self._lease_tokens = lease_tokens
        self._ahead = 0
        self._lease_ended = anyio.Event()
        self.models: Mapping[str, ModelInfo] = {name: model.info for name, model in models.items()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._http.aclose()

    @property
    def capabilities(self) -> Capabilities:
        """Seeds make a run repeatable as far as the server's arithmetic is: that of a batch may differ."""
        dialects = [model.dialect for model in self._hosted.values()]
        return Capabilities(
            score_logprob=all(dialect.scores for dialect in dialects),
            token_stats=all(dialect.most_alternatives > 0 for dialect in dialects),
            seeds=True,
            flops=all(info.cost != UNKNOWN_COST for info in self.models.values()),
            constrains="policy" in self._hosted and self._hosted["policy"].constrains,
        )

    @property
    def live_sequences(self) -> int:
        """Sequences that nobody released yet."""
        return len(self._sequences)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the servers cannot do, in a line each."""
        told = [line for model in self._hosted.values() for line in model.dialect.shortcomings()]
        told += [
            f"the work of model {info.source} is not known: its flops count as 0"
            for info in self.models.values()
            if info.cost == UNKNOWN_COST
        ]
        return tuple(dict.fromkeys(told))

    def open(
        self,
        tokens: Sequence[int],
        *,
        seed: int,
        model: str = "policy",
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> SeqId:
        """Start a sequence. The namespace keeps its prefixes apart in the server's cache; between tenants the
        server decides. See `Backend.open`."""
        ids = fitting_tokens(self.models, model, tokens, behind=0)
        usage = EngineUsage() if usage is None else usage
        usage.unknown = tuple(dict.fromkeys((*usage.unknown, *UNKNOWN)))
        sequence = RemoteSequence(
            ids,
            model=model,
            seed=seed,
            root=root_key(namespace, ids),
            salt=salt_of(namespace),
            usage=usage,
        )
        return self._add(sequence)

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        parent = self._idle(seq)
        return [self._add(parent.fork(seed)) for seed in whole_numbers("seeds", seeds)]

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        sequence = self._idle(seq)
        sequence.append(fitting_tokens(self.models, sequence.model, tokens, behind=len(sequence.tokens)))

    def truncate(self, seq: SeqId, position: int) -> None:
        sequence = self._idle(seq)
        if not 1 <= position <= len(sequence.tokens):
            raise UsageError(
                f"cannot truncate at {position}; the sequence has positions 1 to {len(sequence.tokens)}"
            )
        sequence.truncate(position)

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        """See `Backend.extend`. Raises `ServerLost` where no server answers after all tries, `ServerFailed`
        for a refusal, and `CapabilityError` for sampling that a server cannot do."""
        sequence = self._idle(seq)
        model = self._hosted[sequence.model]
        check_sampling(params.sampling, model.dialect)
        writing = Writing(sequence, params, model.info, on_tokens)
        stop = Stop.CANCELLED
        with self._busy(sequence):
            await anyio.lowlevel.checkpoint()
            stop = await self._write(sequence, writing, meter)
        return writing.end(stop)

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        """Log-probabilities of tokens on the sequence, by the server's `echo`. Raises as `extend`."""
        sequence = self._idle(seq)
        model = self._hosted[sequence.model]
        if params.reward_at or params.logprobs_from is None or not model.dialect.scores:
            raise CapabilityError(
                f"model {model.info.source!r} gives no rewards over a server; open a reward model beside it"
                if params.reward_at
                else f"model {model.info.source!r}: its server does not score the tokens of a prompt"
            )
        if params.top_logprobs:
            raise CapabilityError(
                f"model {model.info.source!r}: its server tells no alternatives of a prompt"
            )
        start = params.logprobs_from
        if not 1 <= start <= len(sequence.tokens):
            raise UsageError(f"logprobs_from is {start}; it must be 1 to {len(sequence.tokens)}")
        if start == len(sequence.tokens):
            await anyio.lowlevel.checkpoint()
            return Scores()
        work = sequence.logprobs_from(start)
        if work is not None and not await self._granted(meter, work, params.order):
            return Scores(refused=True)
        if work is not None:
            sequence.mark(work, paid=True)
        logprobs: tuple[float, ...] = ()
        with self._busy(sequence) as scope:
            try:
                logprobs = await self._echoed(sequence, model, 0 if work is None else work.rows)
            except BaseException:
                if work is not None:
                    sequence.mark(work, paid=False)
                    meter.refund(work)
                raise
        if scope.cancelled_caught:
            raise cancelled_error(seq)
        if work is not None:
            meter.commit(work)
        return Scores(logprobs=logprobs[start:])

    async def _write(self, sequence: RemoteSequence, writing: Writing, meter: Meter) -> Stop:
        """Lease after lease until the extension ends."""
        model = self._hosted[sequence.model]
        route = model.servers.route(sequence.root)
        while (limit := writing.limit) is None:
            lease = await self._lease(sequence, writing, meter)
            if lease is None:
                return Stop.BUDGET
            try:
                stop = await Dictation(model, sequence, writing, lease, route, self._token_came).run()
            finally:
                self._ahead -= lease.give_back()
                self._lease_ended.set()
                self._lease_ended = anyio.Event()
            if stop is not None:
                return stop
        return limit

    async def _lease(self, sequence: RemoteSequence, writing: Writing, meter: Meter) -> Lease | None:
        """The next tokens, as many as the meter grants; None where it refuses. While other branches hold
        tokens that may come back, a refusal is not the last word."""
        while True:
            work = sequence.next_token(0)
            if await self._granted(meter, work, writing.params.order):
                break
            if not self._ahead:
                return None
            await self._lease_ended.wait()
        lease = Lease(sequence, meter, work)
        lease.grow(min(self._lease_tokens, writing.room))
        self._ahead += len(lease)
        return lease

    def _token_came(self) -> None:
        self._ahead -= 1
        self.notify()  # branches that are not to run ahead of this one may go on

    async def _echoed(
        self, sequence: RemoteSequence, model: RemoteModel, fresh_rows: int
    ) -> tuple[float, ...]:
        """The log-probability of each token of the sequence; of the first one 0, which nobody asks for."""
        route = model.servers.route(sequence.root)
        body = score_body(model.served, sequence, model.info, model.dialect)
        while True:
            try:
                reply = await model.servers.complete(route.url, body)
                break
            except ServerTrouble as trouble:
                await route.failed(trouble)
        if reply.usage is not None:
            sequence.count_scored(reply.usage, fresh_rows)
        told = reply.choices[0].logprobs if reply.choices else None
        values = () if told is None or told.token_logprobs is None else told.token_logprobs
        if len(values) < len(sequence.tokens) or None in values[1 : len(sequence.tokens)]:
            raise ServerFailed(f"{route.url}: the reply lacks log-probabilities of the prompt")
        return tuple(value or 0.0 for value in values[: len(sequence.tokens)])
