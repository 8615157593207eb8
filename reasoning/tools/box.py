"""The tools of one search, and what becomes of the calls of its branches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from ...engine.errors import UsageError
from ...engine.protocol import Backend, ModelInfo
from ...engine.text.grammar import lark_grammar
from ...engine.text.stop import Stop
from ...engine.text.tokenizer import HfTokenizer, Message
from ...strategies.base import Step
from ..answer_schema import AnswerGrammar, check_constrains
from ..events import ToolCalled
from ..forced import force
from .call import Call, canonical_calls
from .choice import AUTO, ToolChoice, checked_choice
from .formats import InText, find_format, told_in_words
from .tool import Tool, ToolResult

if TYPE_CHECKING:
    from ..branch import SearchBranch


class ToolBox:
    """Reads the calls that branches of the policy end with, runs them, and appends their results."""

    def __init__(self, tools: Sequence[Tool], info: ModelInfo, choice: ToolChoice = AUTO) -> None:
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise UsageError("tools: two have one name")
        self.choice = checked_choice(choice, list(self.tools))
        self.format = find_format(info)
        ends = self.format.ends
        self._end_id = None if ends is None else info.tokenizer.token_id(ends)
        self.eos_ids = frozenset() if self._end_id is None else frozenset({self._end_id})
        """Ids that end an extension because they end a call."""
        self.strings = () if ends is None or self._end_id is not None else (ends,)
        """The same, for a marker of several tokens."""
        self.grammar = self._grammar(info) if choice.required else None
        """What the answer phase must be, where it must be calls."""

    @property
    def required(self) -> bool:
        """Whether an answer without a call is none."""
        return self.choice.required

    def chat(self, messages: Sequence[Message], info: ModelInfo, *, think: bool | None) -> list[int]:
        """The prompt of `messages` for the model, which is told of the tools: by its template, else in the
        system message. One with markers of its own knows them."""
        tokenizer, tools = info.tokenizer, list(self.tools.values())
        if self.format.turns and isinstance(tokenizer, HfTokenizer):
            return tokenizer.chat(messages, think=think, tools=[tool.as_openai() for tool in tools])
        if info.profile.call is None:
            messages = with_system(messages, told_in_words(tools))
        assert isinstance(self.format, InText)
        turns, begun = in_text(messages, self.format, tools)
        return [*tokenizer.chat(turns, think=think), *tokenizer.encode(begun)]

    def _grammar(self, info: ModelInfo) -> AnswerGrammar:
        tokenizer = info.tokenizer
        lark = self.format.grammar(list(self.tools.values()), self.choice, tokenizer.token_id)
        ends = info.profile.stop_ids
        return AnswerGrammar(lark_grammar(lark, tokenizer, ends, info.vocab_size, option="tool_choice"))

    def serves(self, branch: "SearchBranch") -> bool:
        """Whether tools may be called on it: not on a verifier's question, nor by another model."""
        return not branch.aside and branch.model == branch.run.policy

    def calls_of(self, branch: "SearchBranch", stop: Stop) -> tuple[Call, ...]:
        """The calls that the branch ends with, given why its last extension ended."""
        if stop is Stop.ANSWER and self.grammar is not None:
            stop = Stop.EOS  # the grammar of calls is complete
        if not self.serves(branch) or stop not in (Stop.EOS, Stop.STOP):
            return ()
        calls = self.format.read(branch.text, branch.conclusion, stop, list(self.tools.values()))
        return calls if self.choice.parallel else calls[:1]

    def returns(self, calls: Sequence[Call]) -> bool:
        """Whether the caller of the search is to run them, so that they end the branch."""
        named = [self.tools.get(call.name) for call in calls if self.choice.allows(call.name)]
        return any(tool is not None and tool.function is None for tool in named)

    async def run(self, branch: "SearchBranch", calls: Sequence[Call]) -> Step:
        """Run the calls, side by side, and append their results. The search does not go on meanwhile where
        it is to be reproducible. The results end a step, stop "mark"; "budget" where they are not covered."""
        run = branch.run
        results: list[ToolResult | None] = [None] * len(calls)

        async def one(place: int, call: Call) -> None:
            results[place] = await self._call(call)

        run.outside(1)
        try:
            async with anyio.create_task_group() as group:
                for place, call in enumerate(calls):
                    group.start_soon(one, place, call)
        finally:
            run.outside(-1)
        if not branch.live:  # pruned while its tools ran
            return Step(tokens=(), text="", stop=Stop.CANCELLED)
        found = [result for result in results if result is not None]
        for call, result in zip(calls, found, strict=True):
            run.emit(
                ToolCalled,
                branch=branch.id,
                call=call.canonical,
                result=result.text,
                failed=result.failed,
            )
        return await self._append(branch, [result.text for result in found])

    async def _append(self, branch: "SearchBranch", results: Sequence[str]) -> Step:
        text = self.format.answer(branch.text, results, think=branch.run.think)
        tokens = branch.tokenizer.encode(text)
        if len(tokens) >= branch.room:
            return Step(tokens=(), text="", stop=Stop.CONTEXT)
        step = await force(branch, tokens, on_reserve=branch.draws_on_reserve, ends=Stop.MARK)
        if step.stop is Stop.MARK and branch.answering:
            branch.phases.begin_turn(len(branch.tokens), thinks=self.format.turns)
        return step

    async def _call(self, call: Call) -> ToolResult:
        if call.fault is not None:
            return ToolResult(f"error: {call.fault}", failed=True)
        tool = self.tools.get(call.name)
        if tool is None:
            return ToolResult(f"error: no tool {call.name!r}; there are {', '.join(self.tools)}", failed=True)
        if not self.choice.allows(call.name):
            wanted = ", ".join(filter(self.choice.allows, self.tools))
            return ToolResult(f"error: {call.name} may not be called now, only {wanted}", failed=True)
        return await tool.call(call.arguments)


def open_tools(
    tools: Sequence[Tool], choice: ToolChoice, backend: Backend, *, constrained: bool
) -> ToolBox | None:
    """The box of a search. Raises `UsageError` where its answers are `constrained` and calls would stand
    among them, and for a choice that cannot be kept to (`CapabilityError`: by this engine)."""
    if not tools:
        checked_choice(choice, [])
        return None
    if choice.required:
        check_constrains("tool_choice", backend)
        if constrained:
            raise UsageError("tool_choice and schema: an answer is a call or JSON; give one of the two")
        if any(tool.function is not None for tool in tools):
            raise UsageError("tool_choice: a call is required of tools that the caller runs only")
    info = backend.models["policy"]
    box = ToolBox(tools, info, choice)
    if constrained and (box.format.turns or not info.profile.thinks):
        raise UsageError("tools and schema: this model writes its calls in its answer; give one of the two")
    return box


def in_text(messages: Sequence[Message], format: InText, tools: Sequence[Tool]) -> tuple[list[Message], str]:
    """The messages with calls and results in the assistant's text, and what its last turn began with,
    where that has not ended."""
    turns: list[Message] = []
    begun = ""
    for message in messages:
        if message.role == "tool":
            begun += format.given(message.content)
        elif message.role == "assistant":
            begun += message.content + "".join(format.write(call, tools) for call in message.calls)
        else:
            turns += [Message("assistant", begun)] if begun else []
            turns.append(message)
            begun = ""
    return turns, begun


def with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with `text` at the end of the system message."""
    if messages and messages[0].role == "system":
        return [Message("system", f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message("system", text), *messages]


def note_returned(branch: "SearchBranch", calls: tuple[Call, ...]) -> None:
    """The branch ends with calls that the caller runs: they are its answer, and vote as they are written."""
    branch.calls = calls
    branch.run.electorate.as_written.add(canonical_calls(calls))
