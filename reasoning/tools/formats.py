"""How a model writes calls and reads results: as its own markers or its chat template say, else in plain
words."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from ...engine.protocol import ModelInfo
from ...engine.text.grammar import json_rule, token_rule
from ...engine.text.stop import Stop
from ...engine.text.tokenizer import HfTokenizer, Message, ToolUse
from .call import Call, read_object
from .choice import ToolChoice
from .tool import Tool

_HERMES, _HERMES_END = "<tool_call>", "</tool_call>"
_HERMES_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"
_SAID, _GIVEN = "SAID7f3a", "GIVEN7f3a"
"""Stand-ins in a rendered template, to find what it puts around a turn and a result."""

PLAIN = """You can call tools. Write a call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>; its \
result follows as <tool_response>...</tool_response>. The tools, as JSON schemas:
"""


_BARE = r"/[^\s{<][^<\n]{0,999}/"

TokenId = Callable[[str], int | None]
"""The id of the token that is exactly this text, if there is one."""


class ToolFormat(Protocol):
    """The calls of one model. `turns`: a call ends the model's turn, and its result begins another one;
    else both stand in the running text. `ends`: the text that ends a call there, None for turns."""

    @property
    def turns(self) -> bool: ...

    @property
    def ends(self) -> str | None: ...

    def read(self, written: str, turn: str, stop: Stop, tools: Sequence[Tool]) -> tuple[Call, ...]:
        """The calls that an extension with end `stop` ended with, none for none. `written` is the whole text
        of the branch, `turn` that of the present turn's answer phase."""
        ...

    def said(self, turn: str) -> str:
        """What the answer phase of a turn that ends with calls says before them."""
        ...

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, token_id: TokenId) -> str:
        """The calls that `choice` wants, as the rules of a Lark grammar."""
        ...

    def answer(self, written: str, results: Sequence[str], *, think: bool | None) -> str:
        """What to append behind the calls, so that the model goes on."""
        ...


class InText(msgspec.Struct, frozen=True):
    """Calls between two markers, each result between two others, in the running text, thinking too."""

    call: str = "<tool_call>"
    ends: str = "</tool_call>"
    result: str = "<tool_response>"
    result_end: str = "</tool_response>"
    turns: bool = False

    def read(self, written: str, turn: str, stop: Stop, tools: Sequence[Tool]) -> tuple[Call, ...]:
        _, opened, body = written.rpartition(self.call)
        body, ended, behind = body.partition(self.ends)
        # A marker of several tokens is found as a stop string, and those are not kept.
        here = stop is Stop.EOS if ended else stop is Stop.STOP
        return (_in_words(body.strip(), tools),) if opened and here and not behind else ()

    def said(self, turn: str) -> str:
        return turn.partition(self.call)[0]

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, token_id: TokenId) -> str:
        """One call: nothing may stand behind it. In a model with markers of its own the bare argument, where
        `read` would find a call that is wanted."""
        wanted = [tool for tool in tools if choice.allows(tool.name)]
        bodies = [json_rule(call_schema(tool, "arguments")) for tool in wanted]
        bare = next((tool for tool in tools if tool.sole_text is not None), None)
        if self != InText() and bare is not None and choice.allows(bare.name):
            bodies.append(_BARE)
        opens, ends = (token_rule(mark, token_id(mark)) for mark in (self.call, self.ends))
        return _rules(f"{opens} body {ends}", bodies)

    def answer(self, written: str, results: Sequence[str], *, think: bool | None) -> str:
        missing = "" if written.endswith(self.ends) else self.ends
        return missing + "".join(map(self.given, results))

    def given(self, result: str) -> str:
        """A result as it stands in the text."""
        return f"{self.result}{result}{self.result_end}"

    def write(self, call: ToolUse, tools: Sequence[Tool]) -> str:
        """A call as it stands in the text of a model; in one with markers of its own, the argument alone
        where `read` would find the same call."""
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        values = list(call.arguments.values())
        if self != InText() and len(values) == 1 and isinstance(values[0], str):
            bare = _in_words(values[0], tools)
            body = values[0] if bare == Call(name=call.name, arguments=call.arguments) else body
        return f"{self.call}{body}{self.ends}"


class Turns:
    """Calls that end the turn, by the chat template of the model: those of Hermes and Qwen
    (`<tool_call>` around JSON, several in a turn), or of Llama 3 (one JSON object, alone in the turn)."""

    turns = True
    ends = None

    def __init__(self, tokenizer: HfTokenizer, stop_ids: frozenset[int], *, hermes: bool) -> None:
        self._tokenizer = tokenizer
        self._ends = [tokenizer.decode([token]) for token in sorted(stop_ids)]
        self._hermes = hermes

    def read(self, written: str, turn: str, stop: Stop, tools: Sequence[Tool]) -> tuple[Call, ...]:
        if stop is not Stop.EOS:
            return ()
        if self._hermes:
            return tuple(read_object(body) for body in _HERMES_CALL.findall(turn))
        text = turn.strip()
        tagged, text = text.startswith(_PYTHON_TAG), text.removeprefix(_PYTHON_TAG).strip()
        call = read_object(text)
        # Without the tag, JSON that names no tool is an answer like any other.
        return (call,) if tagged or call.name in {tool.name for tool in tools} else ()

    def said(self, turn: str) -> str:
        """Without white space at the end: the template puts its own between text and calls."""
        return turn.partition(_HERMES)[0].rstrip() if self._hermes else ""

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice, token_id: TokenId) -> str:
        wanted = [tool for tool in tools if choice.allows(tool.name)]
        key = "arguments" if self._hermes else "parameters"
        bodies = [json_rule(call_schema(tool, key)) for tool in wanted]
        if not self._hermes:
            return _rules("body", bodies)
        opens, ends = (token_rule(mark, token_id(mark)) for mark in (_HERMES, _HERMES_END))
        call = f'{opens} "\\n" body "\\n" {ends}'
        return _rules(f'{call} ("\\n" {call})*' if choice.parallel else call, bodies)

    def answer(self, written: str, results: Sequence[str], *, think: bool | None) -> str:
        """The template's own text between an assistant's turn and the next one."""
        messages = [Message("user", "?"), Message("assistant", _SAID)]
        messages += [Message("tool", f"{_GIVEN}{place}.") for place in range(len(results))]
        text = self._tokenizer.render(messages, think=think).rpartition(_SAID)[2]
        for end in self._ends:  # the model wrote one already
            if end and text.startswith(end):
                text = text[len(end) :]
                break
        for place, result in enumerate(results):
            given = f"{_GIVEN}{place}."
            text = text.replace(f'"{given}"', json.dumps(result, ensure_ascii=False)).replace(given, result)
        return text


def find_format(info: ModelInfo) -> ToolFormat:
    """The format of a model."""
    profile, tokenizer = info.profile, info.tokenizer
    if profile.call is not None and profile.call_end is not None:
        return InText(profile.call, profile.call_end, profile.result or "", profile.result_end or "")
    template = tokenizer.template if isinstance(tokenizer, HfTokenizer) else None
    if isinstance(tokenizer, HfTokenizer) and template is not None and "tools" in template.text:
        for mark, hermes in ((_HERMES, True), ("ipython", False)):
            if mark in template.text:
                return Turns(tokenizer, profile.stop_ids, hermes=hermes)
    return InText()


def call_schema(tool: Tool, key: str) -> dict[str, Any]:
    """The JSON schema of a call of the tool, its arguments under `key`. What they refer to moves to the root,
    where references look for it."""
    shared = {name: tool.parameters[name] for name in ("$defs", "definitions") if name in tool.parameters}
    return {
        "type": "object",
        "properties": {
            "name": {"const": tool.name},
            key: {"type": "object", **{n: v for n, v in tool.parameters.items() if n not in shared}},
        },
        "required": ["name", key],
        "additionalProperties": False,
        **shared,
    }


def _rules(start: str, bodies: Sequence[str]) -> str:
    """A Lark grammar with one of `bodies` as the rule `body`."""
    names = [f"body_{place}" for place in range(len(bodies))]
    rules = [f"start: {start}", f"body: {' | '.join(names)}"]
    return "\n".join([*rules, *(f"{name}: {body}" for name, body in zip(names, bodies, strict=True))])


def told_in_words(tools: Sequence[Tool]) -> str:
    """The part of a system message that tells a model of the tools whose template does not."""
    return PLAIN + "\n".join(json.dumps(described(tool), ensure_ascii=False) for tool in tools)


def described(tool: Tool) -> dict[str, Any]:
    """What a model is told of a tool."""
    return tool.as_openai()["function"]


def _in_words(body: str, tools: Sequence[Tool]) -> Call:
    """A call as JSON; any other text is the argument of the first tool with a single parameter that is a
    text."""
    if not body.startswith("{"):
        for tool in tools:
            if (name := tool.sole_text) is not None:
                return Call(name=tool.name, arguments={name: body})
    return read_object(body)
