"""From the tools of a request, and its choice among them, to those of a search."""

import msgspec

from ..reasoning.tools.choice import ToolChoice
from ..reasoning.tools.tool import Tool
from .errors import bad_request
from .schema import AllowedChoice, ChatRequest, NamedChoice

_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def read_tools(body: ChatRequest) -> tuple[Tool, ...]:
    """The tools that the client runs. Raises `ApiError`."""
    if not body.tools or body.tool_choice == "none":
        return ()
    functions = [tool.function for tool in body.tools]
    return tuple(
        Tool(
            name=function.name,
            description=function.description or "",
            parameters=function.parameters or _NO_PARAMETERS,
        )
        for function in functions
    )


def read_choice(body: ChatRequest) -> ToolChoice:
    """Which calls the client wants. Raises `ApiError`."""
    wanted, parallel = body.tool_choice, body.parallel_tool_calls is not False
    if wanted in (None, "auto", "none"):
        return ToolChoice(parallel=parallel)
    if wanted == "required":
        return ToolChoice(required=True, parallel=parallel)
    try:
        named = msgspec.convert(wanted, NamedChoice | AllowedChoice)
    except msgspec.ValidationError:
        raise bad_request(
            'tool_choice: give "auto", "none", "required", or an object of type "function" or '
            '"allowed_tools" as the OpenAI API has them',
            param="tool_choice",
        ) from None
    if isinstance(named, NamedChoice):
        return ToolChoice(required=True, names=(named.function.name,), parallel=parallel)
    allowed = named.allowed_tools
    names = tuple(tool.function.name for tool in allowed.tools)
    return ToolChoice(required=allowed.mode == "required", names=names, parallel=parallel)
