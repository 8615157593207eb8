"""A server that answers with whatever bytes the test gives."""

from collections.abc import Callable, Iterable
from typing import Any

import anyio
import anyio.abc
import msgspec

Reply = Callable[[int, dict[str, Any]], Iterable[bytes | float]]
"""(how many requests came before, body) -> what is sent; a number is a pause in seconds. Then the connection
is closed."""


class RawServer:
    """One server; `requests` are the bodies that came."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
            self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/v1"
            task_status.started()
            await listener.serve(self._connection)

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                body = await _body(stream)
                self.requests.append(body)
                for part in self._reply(len(self.requests) - 1, body):
                    await (stream.send(part) if isinstance(part, bytes) else anyio.sleep(part))
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return


async def _body(stream: anyio.abc.SocketStream) -> dict[str, Any]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0].split(b":")[1]):
        body += await stream.receive()
    return msgspec.json.decode(body)


def head(status: str = "200 OK", kind: str = "text/event-stream", **more: str) -> bytes:
    """A status line and the headers of a reply that ends with its connection."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def event(text: str, finish: str | None = None, logprob: float | None = -0.5, **choice: Any) -> bytes:
    """One event with the tokens of a text, a character each."""
    ids = [ord(c) for c in text]
    told = {"tokens": [""] * len(ids), "token_logprobs": [logprob] * len(ids)}
    usual = {"text": text, "token_ids": ids, "logprobs": told, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"choices": [usual | choice]}) + b"\n\n"


def usage(prompt: int, cached: int | None) -> bytes:
    """The event with the figures."""
    told = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}
    return b"data: " + msgspec.json.encode({"choices": [], "usage": told}) + b"\n\n"


DONE = b"data: [DONE]\n\n"
