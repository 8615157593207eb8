"""The ASGI side of an answer: it runs the search, and ends it when the client goes away."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
import msgspec
from litestar import Request, Response
from litestar.types import Receive, Scope, Send

from ..reasoning.solution import Solution
from ..strategies.registry import tag_of
from .chunks import Chunks
from .keys import Caller
from .reading import Call
from .service import Service
from .streaming import Feed

T = TypeVar("T")


class Responder:
    """Answers one request, whole or as a stream."""

    def __init__(
        self,
        service: Service,
        call: Call,
        caller: Caller,
        chunks: Chunks,
        body: Callable[[list[Solution]], msgspec.Struct],
    ) -> None:
        self._service = service
        self._call = call
        self._caller = caller
        self._chunks = chunks
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what the request is to be answered with, as long as nothing was sent."""
        told: dict[str, Any] = scope["state"]
        told["strategy"] = tag_of(type(self._call.asks[0].strategy))
        answer = self._stream if self._call.stream else self._whole
        await while_there(receive, lambda: answer(told, send))

    async def _whole(self, told: dict[str, Any], send: Send) -> None:
        async with self._service.turn(self._call, self._caller) as spending:
            solutions = await self._service.search(self._call, self._caller, spending)
        _tell(told, solutions)
        body = msgspec.json.encode(self._body(solutions))
        await _start(send, b"application/json", len(body))
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _stream(self, told: dict[str, Any], send: Send) -> None:
        async with self._service.turn(self._call, self._caller) as spending:
            feed = Feed(self._call, self._service.info, self._chunks, self._service.settings.step)

            async def search() -> None:
                try:
                    found = await self._service.search(self._call, self._caller, spending, feed)
                    _tell(told, found)
                    feed.finish(found)
                except Exception as error:
                    told["error"] = type(error).__name__
                    feed.fail(error)

            async with anyio.create_task_group() as group:
                group.start_soon(search)
                # An error before the first event is an answer of its own status, not a part of a stream.
                if await feed.begun() is None:
                    await _start(send, b"text/event-stream", None)
                    async for part in feed.parts(self._service.settings.limits.keep_alive_s):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        if (failure := await feed.begun()) is not None:
            raise failure


class SearchResponse(Response[T], Generic[T]):
    """What a handler returns: litestar hands the request over to the responder."""

    def __init__(self, responder: Responder) -> None:
        super().__init__(content=None)  # pyright: ignore[reportArgumentType]  # the responder makes the content
        self._responder = responder

    def to_asgi_response(self, app: Any, request: Request[Any, Any, Any], **options: Any) -> Any:
        return self._responder


async def while_there(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, and cancel it when the client goes away. The request's body was read before."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, receive, group.cancel_scope)
        try:
            await work()
        except Exception as error:  # raised below: a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            scope.cancel()
            return


async def _start(send: Send, media_type: bytes, length: int | None) -> None:
    headers = [(b"content-type", media_type), (b"cache-control", b"no-store")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    await send({"type": "http.response.start", "status": 200, "headers": headers})


def _tell(told: dict[str, Any], solutions: list[Solution]) -> None:
    """What the log says of the searches."""
    told["tokens"] = sum(solution.usage.tokens for solution in solutions)
    told["reason"] = str(solutions[0].reason)
