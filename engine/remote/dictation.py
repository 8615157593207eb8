"""A lease in the making: what the server of a branch is asked for, and what is taken of its replies."""

from collections.abc import AsyncIterator, Callable

import anyio
import structlog

from ..errors import SamplingError, ServerFailed
from ..text.stop import Stop
from .lease import Lease
from .model import RemoteModel
from .reading import Arrived, end_id, read_tokens
from .request import extend_body, masks_logprobs
from .sequence import RemoteSequence
from .servers import Route, ServerRefused, ServerTrouble
from .wire import Choice, Completion, ServedUsage
from .writing import Writing

log = structlog.get_logger(__name__)

_MOST_LOGPROB = 1e-3
"""Rounding puts the log-probability of a sure token a little above 0."""


class Dictation:
    """The tokens of one lease, by as many requests as they take. `on_token` hears of each that is taken."""

    def __init__(
        self,
        model: RemoteModel,
        sequence: RemoteSequence,
        writing: Writing,
        lease: Lease,
        route: Route,
        on_token: Callable[[], None],
    ) -> None:
        self._model = model
        self._sequence = sequence
        self._writing = writing
        self._lease = lease
        self._route = route
        self._on_token = on_token
        self._masked = False
        self._served: ServedUsage | None = None

    async def run(self) -> Stop | None:
        """Why the extension ends within the lease, if it does. Raises `ServerLost` after the last try, and
        `ServerFailed` for a refusal or a reply that cannot be."""
        writing = self._writing
        while len(self._lease) and writing.stop is None:
            before, redrawing = writing.generated, writing.redraws
            try:
                await self._request()
            except ServerTrouble as trouble:
                if self._wanting:  # else all that it still owed was its usage
                    await self._route.failed(trouble)
                continue
            dropped = writing.redraws and not redrawing
            if writing.generated == before and writing.stop is None and not dropped:
                raise ServerFailed(f"{self._route.url}: the server ended the completion without a token")
        return writing.stop

    @property
    def _wanting(self) -> bool:
        """Whether another token may come."""
        return self._writing.stop is None and len(self._lease) > 0

    async def _request(self) -> None:
        """One try. Where the server takes no schema, another without it."""
        model, writing, narrowed = self._model, self._writing, self._writing.narrowed
        self._masked = masks_logprobs(writing.params.sampling, narrowed, model.dialect)
        count = 1 if narrowed.among is not None else len(self._lease)
        body = extend_body(
            model.served, self._sequence, writing.params, count, model.info, model.dialect, narrowed
        )
        try:
            async with model.servers.stream(self._route.url, body) as events:
                try:
                    await self._read(events)
                finally:
                    self._count_read()
        except ServerRefused as refusal:
            if narrowed.schema is None:
                raise
            log.warning("the server takes no such schema; its text is kept to it here", error=str(refusal))
            writing.without_schema()
            await self._request()

    def _count_read(self) -> None:
        """Some servers tell their figures with each chunk: the last count."""
        if self._served is not None:
            self._sequence.count_read(self._served, self._lease.fresh_rows)
            self._served, self._lease.fresh_rows = None, 0

    async def _read(self, events: AsyncIterator[Completion]) -> None:
        """Take tokens as they come, until the extension or the lease ends, or the server is done. A server
        that sends anything but tokens is not waited for longer than one that sends nothing."""
        policy, done = self._model.servers.policy, False
        with anyio.CancelScope(deadline=anyio.current_time() + policy.silence_s) as patience:
            async for event in events:
                self._served = event.usage or self._served
                for choice in event.choices[:1]:
                    arrived = read_tokens(choice, self._model.info.tokenizer)
                    if arrived and not self._wanting:
                        return  # it goes on: leaving its stream is how it is told
                    for one in arrived:
                        if not self._wanting or not self._fits(one.token):
                            break
                        self._take(one)
                        patience.deadline = anyio.current_time() + policy.silence_s
                    if choice.finish_reason is not None:
                        done = True
                        self._end(choice)
                if self._writing.redraws or (self._writing.stop is not None and not done):
                    return
                if done:  # only the usage is still to come
                    patience.deadline = min(patience.deadline, anyio.current_time() + policy.usage_s)
        if patience.cancelled_caught and self._wanting and not done:
            raise ServerTrouble(f"{self._route.url}: no token for {policy.silence_s:g} s")

    def _fits(self, token: int) -> bool:
        """Whether a token that came may stand behind the text; one that may not is drawn again. Raises
        `ServerFailed` for one that the server was not to write."""
        writing, allowed = self._writing, self._writing.params.sampling.allowed_tokens
        if not 0 <= token < self._model.info.vocab_size:
            self._fail(f"token {token} is none of the {self._model.info.vocab_size} of the vocabulary here")
        if allowed is not None and token not in allowed:
            self._fail(f"the server wrote token {token}, which is none of those that it was to choose from")
        if writing.constrained is None or writing.constrained.accepts(token):
            return True
        if writing.redraws:
            self._fail(f"the server wrote token {token}, which is none of those that fit the schema")
        self._sequence.usage.draft_tokens += 1
        if not writing.constrained.redraw():
            raise SamplingError("schema: no token of the model may follow what stands on the branch")
        return False

    def _fail(self, what: str) -> None:
        raise ServerFailed(f"{self._route.url}: {what}")

    def _take(self, arrived: Arrived) -> None:
        if arrived.logprob is not None and not arrived.logprob <= _MOST_LOGPROB:
            self._fail(f"{arrived.logprob} is no log-probability of a token")
        if self._masked:
            arrived = Arrived(arrived.token)
        self._route.progressed()
        self._writing.take(arrived, self._lease)
        self._sequence.usage.decode_tokens += 1
        self._on_token()

    def _end(self, last: Choice) -> None:
        """The server is done. Where that is because the model ended its text, and no id of its end came, the
        token is put in its place.

        A stop that was given to the server and ends nothing here (a blank line in a code block) only means
        that it is asked again.
        """
        writing = self._writing
        ends, told = writing.params.stop.eos_ids, last.stop_reason
        if told is None:
            told = last.matched_stop
        given = told is not None and told not in ends and last.token_ids is not None
        if last.finish_reason != "stop" or writing.stop is not None or writing.redraws or given:
            return
        token = end_id(told, self._model.info.tokenizer, ends)
        if writing.constrained is not None and (token is None or not self._fits(token)):
            return
        if last.token_ids is None and token is not None and len(self._lease):
            self._take(Arrived(token))
        writing.stop = Stop.EOS
