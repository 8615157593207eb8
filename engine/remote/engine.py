"""The remote back end: branches whose tokens a server writes, under a meter that is asked here."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
import httpx2
import msgspec

from ..checked import whole_numbers
from ..errors import CapabilityError, CapacityError, ServerFailed, UsageError
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
from .dialect import Dialect
from .folder import UNKNOWN_COST
from .lease import Lease
from .reading import Arrived, end_id, read_tokens
from .request import check_sampling, extend_body, salt_of, score_body
from .sequence import RemoteSequence
from .servers import Route, Servers, ServerTrouble
from .wire import Choice, Completion, ServedUsage
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
_SERVED = ("prefill_tokens", "recomputed_tokens", "cached_tokens")
"""Those that a server tells where it reports cached tokens."""


class RemoteModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its servers serve it: under the name `served`."""

    info: ModelInfo
    served: str
    servers: Servers
    dialect: Dialect


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
        if model not in self._hosted:
            raise UsageError(f"no model {model!r} is open; open are {', '.join(sorted(self._hosted))}")
        ids = self._fitting(model, tokens, behind=0)
        if not ids:
            raise UsageError("a sequence needs at least one token; the prompt is empty")
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
        sequence.append(self._fitting(sequence.model, tokens, behind=len(sequence.tokens)))

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
        with anyio.CancelScope() as scope:
            sequence.running = scope
            try:
                await anyio.lowlevel.checkpoint()
                stop = await self._write(sequence, writing, meter)
            finally:
                sequence.running = None
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
        with anyio.CancelScope() as scope:
            sequence.running = scope
            try:
                logprobs = await self._echoed(sequence, model, 0 if work is None else work.rows)
            except BaseException:
                if work is not None:
                    sequence.mark(work, paid=False)
                    meter.refund(work)
                raise
            finally:
                sequence.running = None
        if scope.cancelled_caught:
            raise cancelled_error(seq)
        if work is not None:
            meter.commit(work)
        return Scores(logprobs=logprobs[start:])

    def _fitting(self, model: str, tokens: Sequence[int], *, behind: int) -> tuple[int, ...]:
        """The ids, which must fit in the context behind so many others. Raises `CapacityError`."""
        ids, context = whole_numbers("tokens", tokens), self.models[model].max_model_len
        if behind + len(ids) > context:
            raise CapacityError(
                f"{behind + len(ids)} tokens exceed the context of {model!r}: {context} positions"
            )
        return ids

    async def _write(self, sequence: RemoteSequence, writing: Writing, meter: Meter) -> Stop:
        """Lease after lease until the extension ends."""
        model = self._hosted[sequence.model]
        route = model.servers.route(sequence.root)
        while (limit := writing.limit) is None:
            lease = await self._lease(sequence, writing, meter)
            if lease is None:
                return Stop.BUDGET
            try:
                stop = await self._write_lease(sequence, writing, lease, route)
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

    async def _write_lease(
        self, sequence: RemoteSequence, writing: Writing, lease: Lease, route: Route
    ) -> Stop | None:
        """Have the lease written, by as many tries as it takes; why the extension ends, if it does."""
        model = self._hosted[sequence.model]
        before = writing.generated
        while len(lease):
            body = extend_body(model.served, sequence, writing.params, len(lease), model.info, model.dialect)
            try:
                async with model.servers.stream(route.url, body) as events:
                    await self._read(sequence, writing, lease, route, events)
                break
            except ServerTrouble as trouble:
                if writing.stop is not None:  # all that it still owed was its usage
                    break
                await route.failed(trouble)
        if writing.generated == before and writing.stop is None:
            raise ServerFailed(f"{route.url}: the server ended the completion without a token")
        return writing.stop

    async def _read(
        self,
        sequence: RemoteSequence,
        writing: Writing,
        lease: Lease,
        route: Route,
        events: AsyncIterator[Completion],
    ) -> None:
        """Take tokens as they come, until the extension ends or the server is done."""
        model = self._hosted[sequence.model]
        done = False
        async for event in events:
            if event.usage is not None:
                sequence.usage.prefill_tokens += _count(sequence.usage, event.usage, lease.fresh_rows)
                lease.fresh_rows = 0
            for choice in event.choices[:1]:
                for arrived in read_tokens(choice, model.info.tokenizer):
                    if writing.stop is None and len(lease):
                        route.progressed()
                        self._take(sequence, writing, lease, arrived)
                if choice.finish_reason is not None:
                    done = True
                    self._end(sequence, writing, lease, choice)
            if writing.stop is not None and not done:
                return  # the server goes on: leaving its stream is how it is told

    def _take(self, sequence: RemoteSequence, writing: Writing, lease: Lease, arrived: Arrived) -> None:
        writing.take(arrived, lease)
        self._ahead -= 1
        sequence.usage.decode_tokens += 1
        self.notify()  # branches that are not to run ahead of this one may go on

    def _end(self, sequence: RemoteSequence, writing: Writing, lease: Lease, last: Choice) -> None:
        """The server is done. Where that is because the model ended its text, and no id of its end came, the
        token is put in its place.

        A stop that was given to the server and ends nothing here (a blank line in a code block) only means
        that it is asked again.
        """
        if writing.stop is not None or last.finish_reason != "stop" or last.stop_reason is not None:
            return
        tokenizer = self.models[sequence.model].tokenizer
        token = end_id(last.matched_stop, tokenizer, writing.params.stop.eos_ids)
        if last.token_ids is None and token is not None and len(lease):
            self._take(sequence, writing, lease, Arrived(token))
        writing.stop = Stop.EOS

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
            sequence.usage.score_tokens += _count(sequence.usage, reply.usage, fresh_rows)
        told = reply.choices[0].logprobs if reply.choices else None
        values = () if told is None or told.token_logprobs is None else told.token_logprobs
        if len(values) < len(sequence.tokens) or None in values[1 : len(sequence.tokens)]:
            raise ServerFailed(f"{route.url}: the reply lacks log-probabilities of the prompt")
        return tuple(value or 0.0 for value in values[: len(sequence.tokens)])


def _count(usage: EngineUsage, served: ServedUsage, fresh: int) -> int:
    """Add what a server says that it read. Returns how many of the `fresh` rows, which were never read
    before, it computed; the others that it computed were evicted since, or it never keeps the last ones. A
    server that does not tell what its cache held leaves these figures unknown."""
    details = served.prompt_tokens_details
    if details is None or details.cached_tokens is None:
        usage.unknown = tuple(dict.fromkeys((*usage.unknown, *_SERVED)))
        return fresh
    usage.cached_tokens += details.cached_tokens
    computed = served.prompt_tokens - details.cached_tokens
    usage.recomputed_tokens += max(0, computed - fresh)
    return min(computed, fresh)
