"""Errors as an OpenAI client reads them: a status, and one object that says what was wrong."""

import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)

from ..engine.errors import CapacityError, EngineClosed, QueueFullError, UsageError

LONGEST_MESSAGE = 2000
"""Characters of an error, which may quote what the client sent."""

_MISSING = re.compile(r"required field `(\w+)`")


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """`type` is the class of the error; `param` the field of the request that it is about; `code` names some
    of them for programs."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class ApiError(Exception):
    """A request that is answered with `status` and a body in OpenAI's shape.

    `retry_after_s`: when to try again, for the header of that name; `allow`: the methods that there are.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
        allow: str | None = None,
    ) -> None:
        message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."
        super().__init__(message)
        self.status = status
        self.detail = ErrorDetail(message=message, type=kind, param=param, code=code)
        self.retry_after_s = retry_after_s
        self._allow = allow

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        headers |= {} if self._allow is None else {"Allow": self._allow}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that cannot be answered as it stands."""
    return ApiError(400, message, param=param, code=code)


def too_many(message: str, retry_after_s: int, code: str = "rate_limit_exceeded") -> ApiError:
    """A request that may come again after `retry_after_s`."""
    return ApiError(429, message, kind="rate_limit_error", code=code, retry_after_s=retry_after_s)


def as_api_error(error: Exception) -> ApiError:
    """What the client is told of any error. Faults of the server are named by their type alone: their texts
    may quote other requests."""
    match error:
        case ApiError():
            return error
        case CapacityError():
            return bad_request(str(error), code="context_length_exceeded")
        case UsageError():
            return bad_request(str(error))
        case QueueFullError():
            return too_many("the engine's queue is full: try again", 1, code="queue_full")
        case EngineClosed():
            return ApiError(503, "the server is going down", kind="server_error", retry_after_s=5)
        case ValidationException():
            return _invalid(error)
        case HTTPException():
            return _of_http(error)
    return ApiError(
        500, f"the server failed ({type(error).__name__})", kind="server_error", code="internal_error"
    )


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[ErrorBody]:
    """Litestar's handler of all exceptions."""
    found = _of_request(request, error) or as_api_error(error)
    request.scope["state"]["error"] = type(error).__name__
    return Response(ErrorBody(found.detail), status_code=found.status, headers=found.headers)


def _of_request(request: Request[Any, Any, Any], error: Exception) -> ApiError | None:
    """What is wrong with the request as HTTP has it: where it goes, how, and what its body is; None for
    anything else."""
    path, kind = request.url.path[:100], request.headers.get("content-type", "")
    match error:
        case RecursionError() if "strategy" not in request.scope["state"]:  # no search began: it is the body
            return bad_request("the body: it is nested too deeply")
        case MethodNotAllowedException():
            allow = "POST" if path.rstrip("/").endswith("completions") else "GET"
            return ApiError(405, f"{request.method} {path}: the method here is {allow}", allow=allow)
        case NotFoundException():
            served = "/v1/chat/completions, /v1/completions or /v1/models; /docs lists all"
            return ApiError(404, f"{path}: not served here; give {served}", kind="not_found_error")
        case HTTPException(status_code=413):
            most = request.app.request_max_body_size
            return ApiError(413, f"the body: it is larger than {most} bytes; give a smaller one")
        case HTTPException(status_code=400) if "json" not in kind and "malformed" in str(error.detail):
            return bad_request(f"the body: content-type {kind[:60]!r} and no JSON; give JSON")
    return None


def _invalid(error: ValidationException) -> ApiError:
    """The first field that is not as the schema has it."""
    extra = error.extra if isinstance(error.extra, list) else []
    for item in extra:
        if isinstance(item, dict) and "message" in item:
            key, message = str(item.get("key") or "") or None, str(item["message"])
            if key != "data":
                return bad_request(f"{key}: {message}" if key else message, param=key)
            if message == "'data'":
                return bad_request("the body: it is empty; give a JSON object")
            missing = _MISSING.search(message)
            return bad_request(f"the body: {message}", param=missing and missing[1])
    return bad_request(error.detail)


def _of_http(error: HTTPException) -> ApiError:
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    kind = kinds.get(
        error.status_code, "server_error" if error.status_code >= 500 else "invalid_request_error"
    )
    return ApiError(error.status_code, error.detail, kind=kind)
