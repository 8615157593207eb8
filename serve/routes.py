"""The endpoints."""

from typing import Any

from litestar import Request, get, post
from litestar.connection import ASGIConnection
from litestar.enums import MediaType
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody
from litestar.response import Response

from ..reasoning.treepage import live_page
from ..strategies.registry import strategy_names
from .answer import Reply
from .chunks import ChatChunks, TextChunks
from .errors import ApiError, ErrorBody
from .keys import Caller
from .reading import read_chat, read_completion, read_model
from .responding import Responder, SearchResponse
from .schema import (
    ChatCompletion,
    ChatRequest,
    CompletionRequest,
    Health,
    ModelCard,
    ModelList,
    TextCompletion,
)
from .service import Service

AnyRequest = Request[Any, Any, Any]

_TEXTS = {
    400: "The request cannot be answered as it stands.",
    401: "No valid API key.",
    404: "No such model.",
    413: "The body is too large.",
    429: "The key's minute is used up, or the queue is full: see Retry-After.",
    500: "The server failed.",
    503: "The server is going down.",
}


def _errors(*statuses: int) -> dict[int, ResponseSpec]:
    return {
        status: ResponseSpec(ErrorBody, description=_TEXTS[status], generate_examples=False)
        for status in statuses
    }


_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_SEARCH_ERRORS = _errors(400, 401, 404, 413, 429, 500, 503)


def identify(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard: who asks, before anything of the body is read."""
    service: Service = connection.app.state.service
    caller = service.settings.keys.caller(connection.headers.get("authorization"))
    connection.scope["state"]["caller"] = caller


@post("/v1/chat/completions", status_code=200, guards=[identify], responses=_SEARCH_ERRORS)
async def chat_completions(request: AnyRequest, data: JSONBody[ChatRequest]) -> Response[ChatCompletion]:
    """Solve the last user turn by search. With `stream`: server-sent events of `chat.completion.chunk`."""
    service = _service(request)
    call = read_chat(data, service.settings, service.info)
    reply = Reply(call, service.info, "chatcmpl")
    return SearchResponse(Responder(service, call, _caller(request), ChatChunks(reply), reply.chat))


@post("/v1/completions", status_code=200, guards=[identify], responses=_SEARCH_ERRORS)
async def completions(request: AnyRequest, data: JSONBody[CompletionRequest]) -> Response[TextCompletion]:
    """Go on from each prompt by search. With `stream`: server-sent events of `text_completion`."""
    service = _service(request)
    call = read_completion(data, service.settings, service.info, service.prompts)
    reply = Reply(call, service.info, "cmpl")
    return SearchResponse(Responder(service, call, _caller(request), TextChunks(reply), reply.text))


@get("/v1/models", guards=[identify], responses=_errors(401))
async def list_models(request: AnyRequest) -> ModelList:
    """The served model by itself, which has the default strategy, and with each strategy."""
    service = _service(request)
    name = service.settings.name
    names = [name, *(f"{name}:{strategy}" for strategy in strategy_names())]
    return ModelList(data=[_card(service, each) for each in names])


@get("/v1/models/{model:path}", guards=[identify], responses=_errors(401, 404))
async def one_model(request: AnyRequest, model: FromPath[str]) -> ModelCard:
    """A name that `model` may have; strategies without parameters only."""
    service = _service(request)
    name = model.removeprefix("/")
    strategy = read_model(name, service.settings)
    if strategy is not None and strategy not in strategy_names():
        raise ApiError(404, "no such strategy", kind="not_found_error", code="model_not_found")
    return _card(service, name)


@get("/healthz")
async def health(request: AnyRequest) -> Health:
    """Whether the server answers, and how busy it is."""
    service = _service(request)
    return Health(model=service.settings.name, running=service.line.running, waiting=service.line.waiting)


@get("/metrics", media_type=MediaType.TEXT)
async def metrics(request: AnyRequest) -> Response[str]:
    """The engine's and the server's figures, in Prometheus' text format."""
    return Response(_service(request).metrics.render(), media_type="text/plain; version=0.0.4")


@get("/ui", media_type=MediaType.HTML, include_in_schema=False)
async def tree_page(request: AnyRequest) -> Response[str]:
    """The page that shows a search tree as it grows. It needs no key; what it asks for does."""
    settings = _service(request).settings
    page = live_page(keyed=not settings.keys.open, tokens=settings.budget.tokens)
    return Response(page, media_type="text/html", headers=_PAGE_HEADERS)


def _service(request: AnyRequest) -> Service:
    return request.app.state.service


def _caller(request: AnyRequest) -> Caller:
    return request.scope["state"]["caller"]


def _card(service: Service, name: str) -> ModelCard:
    return ModelCard(id=name, created=service.started)
