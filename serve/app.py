"""The ASGI application: routes, errors, the OpenAPI page, and what is logged of each request."""

from time import monotonic
from typing import Any

import structlog
from litestar import Litestar
from litestar.datastructures import State
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin
from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send

from .apipage import PageRenderPlugin
from .errors import answer_error
from .keys import Caller
from .requestlog import request_log
from .routes import chat_completions, completions, health, list_models, metrics, one_model, tree_page
from .service import Service

PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/models", "/healthz", "/metrics", "/ui"})
"""What logs and metrics name; every other path is "other", so that no client makes up new ones."""

GONE = 499
"""The status that log and metrics have for a request whose client went away before its answer was whole."""

_TOLD = ("strategy", "reason", "tokens", "error")


def make_app(service: Service) -> ASGIApp:
    """The server's application on a service."""
    app = Litestar(
        [chat_completions, completions, list_models, one_model, health, metrics, tree_page],
        state=State({"service": service}),
        exception_handlers={Exception: answer_error},
        request_max_body_size=service.settings.limits.body_bytes,
        openapi_config=OpenAPIConfig(
            title="branchwise",
            version="1",
            description="Any search strategy under a hard budget, by the name of a model.",
            path="/docs",
            use_handler_docstrings=True,
            render_plugins=[
                PageRenderPlugin(path="/"),
                JsonRenderPlugin(path="/openapi.json"),
                YamlRenderPlugin(path="/openapi.yaml"),
            ],
        ),
        logging_config=None,
    )
    return _Observed(app, service, request_log())


class _Observed:
    """Counts and logs each request of an application."""

    def __init__(self, app: ASGIApp, service: Service, log: structlog.typing.FilteringBoundLogger) -> None:
        self._app = app
        self._service = service
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = monotonic()
        told: dict[str, Any] = {}
        scope["state"] = told
        status, answered, left = 500, False, False

        async def hear() -> ReceiveMessage:
            nonlocal left
            message = await receive()
            left |= message["type"] == "http.disconnect" and not answered
            return message

        async def observe(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)
            answered |= not message.get("more_body", True)

        try:
            await self._app(scope, hear, observe)
        finally:
            if left:  # litestar calls it an error of the server where the body had not come yet
                status = GONE
                told.pop("error", None)
            self._tell(scope, status, monotonic() - started, told)

    def _tell(self, scope: Any, status: int, seconds: float, told: dict[str, Any]) -> None:
        path = _named(scope["path"])
        self._service.metrics.requests.labels(path, str(status)).inc()
        self._service.metrics.seconds.labels(path).observe(seconds)
        if path in ("/healthz", "/metrics"):
            return
        caller = told.get("caller")
        fields = {name: told[name] for name in _TOLD if name in told}
        if isinstance(caller, Caller):
            fields["key"] = caller.name
        self._log.info("request", path=path, status=status, seconds=round(seconds, 3), **fields)


def _named(path: str) -> str:
    if path.startswith("/v1/models/"):
        return "/v1/models"
    return path if path in PATHS else "other"
