"""A tool: an async function that a model may call, with arguments that are checked before."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_type_hints

import anyio
import msgspec

from ...engine.errors import UsageError

MOST_CHARACTERS = 4000
"""Of a result: what is longer is cut, since each token of it is charged to the branch."""


class ToolResult(msgspec.Struct, frozen=True):
    """What is appended to the branch that called. `failed`: the text says what went wrong."""

    text: str
    failed: bool = False


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is told of a tool, and what runs it.

    `parameters` is a JSON schema of an object, `function` takes its fields by name; None where the caller of
    the search runs it: a call then ends the branch. `timeout_s`: seconds that one call may take.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Awaitable[Any]] | None = None
    arguments: type[msgspec.Struct] | None = None
    timeout_s: float = 10.0

    @classmethod
    def of(
        cls,
        function: Callable[..., Awaitable[Any]],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float = 10.0,
    ) -> "Tool":
        """The tool of an async function: its parameters are those of the signature, whose types msgspec must
        know; the description is the first paragraph of its docstring.

        Raises `UsageError` in one line.
        """
        called = name or getattr(function, "__name__", "tool")
        if not inspect.iscoroutinefunction(function):
            raise UsageError(f"tool {called}: give an async function")
        if not timeout_s > 0:
            raise UsageError(f"tool {called}: timeout_s={timeout_s}: give more than 0 seconds")
        arguments = _arguments_of(function, called)
        schema = msgspec.json.schema(arguments)
        said = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        return cls(
            name=called,
            description=said if description is None else description,
            parameters=_inlined(schema),
            function=function,
            arguments=arguments,
            timeout_s=timeout_s,
        )

    @property
    def sole_text(self) -> str | None:
        """The name of its only parameter, where that is a text."""
        match self.parameters.get("properties"):
            case {**properties} if len(properties) == 1:
                ((name, schema),) = properties.items()
                return name if isinstance(schema, Mapping) and schema.get("type") == "string" else None
        return None

    def as_openai(self) -> dict[str, Any]:
        """The object that chat templates take."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run it within its time. Whatever goes wrong is a result."""
        assert self.function is not None
        try:
            given = dict(arguments)
            if self.arguments is not None:
                checked = msgspec.convert(given, self.arguments)
                given = {name: getattr(checked, name) for name in checked.__struct_fields__}
            with anyio.fail_after(self.timeout_s):
                value = await self.function(**given)
            return ToolResult(_cut(value if isinstance(value, str) else msgspec.json.encode(value).decode()))
        except TimeoutError:
            return ToolResult(f"error: no result within {self.timeout_s:g} s", failed=True)
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            return ToolResult(_cut(f"error: {said}"), failed=True)


def _arguments_of(function: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    try:
        hints = get_type_hints(function, include_extras=True)
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{parameter.name} cannot be given by name")
            kind = hints.get(parameter.name, str)
            has_default = parameter.default is not parameter.empty
            fields.append(
                (parameter.name, kind, parameter.default) if has_default else (parameter.name, kind)
            )
        made = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.schema(made)
    except (TypeError, NameError) as error:
        raise UsageError(f"tool {name}: {' '.join(str(error).split())}") from None
    return made


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its root in place of a reference to it."""
    definitions = dict(schema.get("$defs", {}))
    root = definitions.pop(schema["$ref"].rsplit("/", 1)[-1])
    root = {key: value for key, value in root.items() if key != "title"}
    return root | ({"$defs": definitions} if definitions else {})


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "..."
