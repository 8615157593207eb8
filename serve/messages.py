"""From the turns of a chat to a problem."""

from collections.abc import Sequence

from ..engine.text.tokenizer import Message, ToolUse
from ..reasoning.tools.call import decode
from ..verifiers.problem import Problem
from .errors import bad_request
from .schema import ChatMessage, ToolCall


def read_messages(messages: Sequence[ChatMessage]) -> Problem:
    """The last user turn as the problem: what was said before it are its earlier turns, calls of tools and
    their results stand behind it. What the model was told as system is one message."""
    turns = [message for message in messages if message.role not in ("system", "developer")]
    system = [_text(message) for message in messages if message.role in ("system", "developer")]
    asked = [place for place, message in enumerate(turns) if message.role == "user"]
    if not asked or turns[-1].role not in ("user", "tool"):
        raise bad_request("messages: the last one must be the user's, or a tool's result", param="messages")
    last = asked[-1]
    read = [_message(message) for message in turns]
    if any(not message.calls for message in read[last + 1 :] if message.role == "assistant"):
        raise bad_request(
            "messages: an answer without tool_calls must be followed by the user", param="messages"
        )
    return Problem(
        text=read[last].content,
        system="\n\n".join(system) or None,
        messages=tuple(read[:last]),
        since=tuple(read[last + 1 :]),
    )


def _message(message: ChatMessage) -> Message:
    calls = tuple(map(_use, message.tool_calls or ())) if message.role == "assistant" else ()
    return Message(message.role, _text(message), calls)


def _use(call: ToolCall) -> ToolUse:
    try:
        arguments = decode(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise bad_request("messages: the arguments of a tool call are no JSON object", param="messages")
    return ToolUse(call.function.name, arguments)


def _text(message: ChatMessage) -> str:
    """The text of a message; parts are joined."""
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise bad_request(
                f"messages: a part of type {part.type[:40]!r} cannot be read; give text", param="messages"
            )
    return "\n".join(part.text or "" for part in message.content)
