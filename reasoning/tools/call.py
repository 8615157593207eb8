"""A call that a model wrote, and the one spelling under which equal calls vote together."""

import json
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` as the model gave them; `fault` says why they could not be read."""

    name: str
    arguments: dict[str, Any] = {}
    fault: str | None = None

    @property
    def canonical(self) -> str:
        """The call with its arguments in one order and spelling."""
        text = json.dumps(self.arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return f"{self.name}({text})"


def canonical_calls(calls: "tuple[Call, ...]") -> str:
    """The calls of one turn as an answer: one a line, in the order that they were written in."""
    return "\n".join(call.canonical for call in calls)


def decode(text: str) -> Any:
    """The value of a JSON text, in the letter of RFC 8259: `NaN`, numbers beyond a float and halves of UTF-16
    pairs, which Python's own reader lets in, could not be written again. Raises `ValueError` in one line."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_object(text: str) -> Call:
    """The call in a JSON object with a name, and `arguments` or `parameters`."""
    try:
        value = decode(text)
    except ValueError as error:
        return Call(name="", fault=f"the call is not JSON ({error})")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call(name="", fault='the call is no object with a "name"')
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = decode(arguments)
        except ValueError:
            arguments = None
    if not isinstance(arguments, dict):
        return Call(name=value["name"], fault='"arguments" is no object')
    return Call(name=value["name"], arguments=arguments)
