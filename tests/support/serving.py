"""A server in a thread of the test's process, whose engine the test can look into."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import anyio
import httpx
from branchwise.engine.protocol import Backend
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.serve.app import make_app
from branchwise.serve.running import Server, make_server, serve
from branchwise.serve.service import Service
from branchwise.serve.settings import Limits, Settings

WAIT_S = 60.0


def settings_for(**changes: Any) -> Settings:
    """Settings of a small server on the reference model."""
    usual: dict[str, Any] = {
        "name": "reference",
        "budget": Budget(tokens=1000),
        "ceiling": Budget(tokens=20_000, seconds=60.0),
        "limits": Limits(body_bytes=64 * 1024),
    }
    return Settings(**(usual | changes))


class ServerThread:
    """Runs a server until the block is left; `url` is its address."""

    def __init__(self, settings: Settings, model: str = "reference") -> None:
        self.settings = settings
        self._model = model
        self._ready: Future[tuple[Reasoner, Server, int]] = Future()
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.reasoner, self._server, self.port = self._ready.result(timeout=60)
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=WAIT_S)
        assert not self._thread.is_alive()

    @property
    def scheduler(self) -> Any:
        """The engine's scheduler, to look at."""
        return getattr(self.reasoner.backend, "scheduler")  # noqa: B009  # no part of the back end's protocol

    def live_sequences(self) -> int:
        return len(self.scheduler.family.sequences)

    def owned_blocks(self) -> int:
        """KV blocks that live sequences hold, of all models."""
        return sum(memory.pool.owned for memory in self.scheduler.memories.values())

    def _run(self) -> None:
        async def run() -> None:
            async with Reasoner.open(self._model, threads=1) as reasoner:
                server: Server

                def listening(port: int) -> None:
                    self._ready.set_result((reasoner, server, port))

                server = make_server(
                    reasoner, self.settings, host="127.0.0.1", port=0, on_listening=listening
                )
                await serve(server)

        try:
            anyio.run(run)
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds; fails after a while."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.01)


def chat_once(backend: Backend, path: str = "/v1/chat/completions", **body: Any) -> Any:
    """The answer to one request of a server on `backend`, without a socket: the parsed body, or the chunks of
    its stream."""

    async def ask() -> Any:
        async with Reasoner.over(backend) as reasoner:
            app: Any = make_app(Service(reasoner, settings_for(name="m")))
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                usual = {"model": "m", "messages": [{"role": "user", "content": "task"}], "seed": 1}
                reply = await client.post(path, json=usual | body)
                if not body.get("stream") or reply.status_code != 200:
                    return reply.json()
                lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
                assert lines.pop() == "[DONE]"
                return [json.loads(line) for line in lines]

    return anyio.run(ask)
