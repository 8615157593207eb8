"""What a server of the tests answers one request with."""

from typing import Any

import anyio
import anyio.abc
import h11
import msgspec


class Reply:
    """The answer to one request."""

    def __init__(self, stream: anyio.abc.SocketStream, connection: h11.Connection) -> None:
        self._stream = stream
        self._connection = connection

    async def whole(self, status: int, body: Any, *, retry_after: str | None = None) -> None:
        data = msgspec.json.encode(body)
        headers = [("content-type", "application/json"), ("content-length", str(len(data)))]
        if retry_after is not None:
            headers.append(("retry-after", retry_after))
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=data))
        await self._send(h11.EndOfMessage())

    async def begin(self) -> None:
        headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        await self._send(h11.Response(status_code=200, headers=headers))

    async def event(self, event: Any) -> None:
        await self._send(h11.Data(data=b"data: " + msgspec.json.encode(event) + b"\n\n"))

    async def end(self) -> None:
        await self._send(h11.Data(data=b"data: [DONE]\n\n"))
        await self._send(h11.EndOfMessage())

    async def cut(self) -> None:
        await self._stream.aclose()

    async def watch(self, scope: anyio.CancelScope) -> None:
        """Cancel what is written for a client that left. What it sends meanwhile is its next request."""
        try:
            while True:
                self._connection.receive_data(await self._stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            scope.cancel()

    async def _send(self, event: Any) -> None:
        data = self._connection.send(event)
        if data:
            await self._stream.send(data)
