"""The servers of one model: what is sent to them, and where the next try goes when one fails."""

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import anyio
import httpx2
import msgspec
import structlog

from ..errors import ServerFailed, ServerLost
from .affinity import preference
from .wire import Completion, ModelList, Tokens, error_text

log = structlog.get_logger(__name__)

_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_STREAM = "text/event-stream"
_EVENT = "data:"
_LAST = "[DONE]"
_LONGEST_ASKED_WAIT_S = 60.0


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A request is tried `attempts` times without a token in between, on all servers together. The wait
    before a try doubles from `first_s` to at most `longest_s`, and is drawn from its upper half; a server may
    ask for a longer one. A server that failed is passed over for `down_s` seconds where there is another.
    One that sends no token for `silence_s`, its queue included, has failed; for the figures behind the last
    token it is given `usage_s`.
    """

    attempts: int = 5
    first_s: float = 0.25
    longest_s: float = 8.0
    down_s: float = 10.0
    silence_s: float = 300.0
    usage_s: float = 5.0


class ServerTrouble(Exception):
    """A failure that may pass: no connection, a broken stream, a server that is busy or restarting."""

    def __init__(self, message: str, *, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class ServerRefused(ServerFailed):
    """A server does not take a request, and would not the next time."""


class Servers:
    """Servers that serve the same weights under one name."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        urls: Sequence[str],
        policy: RetryPolicy,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls = tuple(urls)
        self.policy = policy
        self._http = http
        self._now = now
        self._down_until: dict[str, float] = {}

    def route(self, key: bytes) -> "Route":
        """Where the requests of one root go."""
        return Route(self, preference(key, self.urls))

    @asynccontextmanager
    async def stream(self, url: str, body: dict[str, Any]) -> AsyncGenerator[AsyncIterator[Completion]]:
        """The events of a streamed completion; leaving the block closes the connection, which cancels the
        request. Raises `ServerTrouble`, also from the iteration, and `ServerFailed` for a refusal."""
        with _trouble(url):
            async with self._http.stream("POST", f"{url}/completions", content=_encoded(body)) as response:
                await _check(url, response, _STREAM)
                async with aclosing(_events(url, response)) as events:
                    yield events

    async def complete(self, url: str, body: dict[str, Any]) -> Completion:
        """A completion in one piece. Raises as `stream`."""
        with _trouble(url), self._patience(url):
            response = await self._http.post(f"{url}/completions", content=_encoded(body))
            await _check(url, response)
            return _decoded(url, response.content, Completion)

    async def models(self, url: str) -> ModelList:
        """What a server serves. Raises as `stream`."""
        with _trouble(url), self._patience(url):
            response = await self._http.get(f"{url}/models")
            await _check(url, response)
            return _decoded(url, response.content, ModelList)

    async def tokens(self, url: str, served: str, text: str) -> tuple[int, ...] | None:
        """How a server cuts a text, None where it does not tell. Raises as `stream`."""
        body = {"model": served, "prompt": text, "add_special_tokens": False}
        with _trouble(url), self._patience(url):
            response = await self._http.post(f"{url.removesuffix('/v1')}/tokenize", content=_encoded(body))
        if response.status_code >= 300:
            return None
        return _decoded(url, response.content, Tokens).tokens

    @contextmanager
    def _patience(self, url: str) -> Iterator[None]:
        """A reply in one piece must be whole in time, however slowly it dribbles."""
        with anyio.CancelScope(deadline=anyio.current_time() + self.policy.silence_s) as scope:
            yield
        if scope.cancelled_caught:
            raise ServerTrouble(f"{url}: no whole reply within {self.policy.silence_s:g} s")

    def first_up(self, urls: Sequence[str]) -> str:
        """The first server that is not known to be down, or the first to be tried again."""
        now = self._now()
        return min(urls, key=lambda url: max(0.0, self._down_until.get(url, 0.0) - now))

    def mark(self, url: str, *, up: bool) -> None:
        if up:
            self._down_until.pop(url, None)
        else:
            self._down_until[url] = self._now() + self.policy.down_s

    def is_down(self, url: str) -> bool:
        return self._down_until.get(url, 0.0) > self._now()


class Route:
    """The tries of one request. `url` is where the next one goes."""

    def __init__(self, servers: Servers, preferred: Sequence[str]) -> None:
        self._servers = servers
        self._preferred = preferred
        self._tries = 0
        self.url = servers.first_up(preferred)

    def progressed(self) -> None:
        """The server answered: the count of failures starts again."""
        if self._tries:
            self._tries = 0
            self._servers.mark(self.url, up=True)

    async def failed(self, trouble: ServerTrouble) -> None:
        """Wait, and choose the server of the next try. Raises `ServerLost` after the last."""
        policy, servers = self._servers.policy, self._servers
        self._tries += 1
        servers.mark(self.url, up=False)
        if self._tries >= policy.attempts:
            raise ServerLost(f"{trouble} (given up after {self._tries} tries)") from trouble
        log.warning("remote server failed", error=str(trouble), tries=self._tries)
        self.url = servers.first_up(self._preferred)
        if servers.is_down(self.url):
            wait_s = min(policy.longest_s, policy.first_s * 2 ** (self._tries - 1))
            await anyio.sleep(max(trouble.wait_s, wait_s * random.uniform(0.5, 1.0)))
            self.url = servers.first_up(self._preferred)


@contextmanager
def _trouble(url: str) -> Iterator[None]:
    """Name the server in what the HTTP client raises in the block."""
    try:
        yield
    except httpx2.RequestError as error:
        raise ServerTrouble(f"{url}: {str(error) or type(error).__name__}") from error


def _encoded(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)


def _decoded(url: str, body: bytes, kind: type) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServerFailed(f"{url}: the reply is not that of an OpenAI-compatible server ({error})") from None


async def _check(url: str, response: httpx2.Response, kind: str | None = None) -> None:
    """Raises `ServerTrouble` for a status that may pass, `ServerRefused` for another, and `ServerFailed`
    for a reply that is of another `kind`."""
    if response.status_code < 300:
        told = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and told and told != kind:
            said = error_text(await response.aread())
            raise ServerFailed(f"{url}: the reply is {told}, not {kind}: {said}")
        return
    if response.status_code < 400:
        there = response.headers.get("location", "nowhere")
        raise ServerRefused(f"{url}: {response.status_code} redirects to {there}: give the URL of the server")
    said = f"{url}: {response.status_code} {error_text(await response.aread())}"
    if response.status_code in _TRY_AGAIN:
        raise ServerTrouble(said, wait_s=_asked_wait(response.headers.get("retry-after")))
    raise ServerRefused(said)


def _asked_wait(header: str | None) -> float:
    """Seconds of a `Retry-After`; a date counts as nothing."""
    try:
        return min(_LONGEST_ASKED_WAIT_S, max(0.0, float(header or 0)))
    except ValueError:
        return 0.0


async def _events(url: str, response: httpx2.Response) -> AsyncGenerator[Completion]:
    """Server-sent events up to the last; `ServerTrouble` where the stream ends before it."""
    async for line in response.aiter_lines():
        if not line.startswith(_EVENT):
            continue
        data = line.removeprefix(_EVENT).strip()
        if data == _LAST:
            return
        try:
            event = msgspec.json.decode(data, type=Completion)
        except msgspec.DecodeError as error:  # cut off, mostly
            raise ServerTrouble(f"{url}: an event of the stream cannot be read ({error})") from None
        if bytes(event.error) != b"null":
            raise ServerTrouble(f"{url}: {error_text(data.encode())}")
        yield event
    raise ServerTrouble(f"{url}: the stream ended before the completion did")
