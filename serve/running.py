"""A server on open models, until it is told to stop."""

import socket
from collections.abc import Callable

import msgspec
import typer
import uvicorn

from ..engine.errors import UsageError
from ..reasoning.cli.render import memory_line
from ..reasoning.cli.requests import Opening
from ..reasoning.reasoner import Reasoner
from .app import make_app
from .service import Service
from .settings import Settings

DRAIN_S = 10
"""Seconds that running requests have to end when the server is told to stop."""


class Server(uvicorn.Server):
    """A uvicorn server that says when it listens. In the main thread SIGINT and SIGTERM end it."""

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            self._on_listening(server.sockets[0].getsockname()[1])


def make_server(
    reasoner: Reasoner,
    settings: Settings,
    *,
    host: str,
    port: int,
    on_listening: Callable[[int], None] = lambda port: None,
) -> Server:
    """A server that is not started yet; `serve` runs it. Port 0 takes any that is free."""
    config = uvicorn.Config(
        make_app(Service(reasoner, settings)),
        host=host,
        port=port,
        log_level="critical",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=DRAIN_S,
        # A header or a request line can be no larger, and a connection that says nothing is closed.
        h11_max_incomplete_event_size=64 * 1024,
        timeout_keep_alive=30,
    )
    return Server(config, on_listening)


async def serve(server: Server) -> None:
    """Run it on this event loop. Raises `UsageError` where it cannot listen."""
    try:
        await server.serve()
    except SystemExit as error:
        host, port = server.config.host, server.config.port
        raise UsageError(f"cannot listen on {host}:{port}: give another --host or --port") from error


async def open_and_serve(opening: Opening, settings: Settings, host: str, port: int) -> None:
    """Open the models and serve them until the process is told to stop. The address is printed when the
    server listens."""
    async with Reasoner.open(**msgspec.structs.asdict(opening)) as reasoner:
        if not settings.name:
            settings = msgspec.structs.replace(settings, name=reasoner.source.name)
        if reasoner.memory_plan is not None:
            typer.echo(memory_line(reasoner.memory_plan))

        def tell(port: int) -> None:
            shown = f"[{host}]" if ":" in host else host
            keys = "any key is let in" if settings.keys.open else "with API keys"
            typer.echo(
                f"serving {settings.name} on http://{shown}:{port}/v1, {keys}; its API is at /docs, "
                "its searches at /ui"
            )

        await serve(make_server(reasoner, settings, host=host, port=port, on_listening=tell))
