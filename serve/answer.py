"""From solutions to the bodies of answers."""

import json
import math
import secrets
from collections.abc import Sequence
from time import time
from typing import Any, Literal

import msgspec

from ..engine.protocol import ModelInfo
from ..engine.text.stop import Stop
from ..reasoning.solution import Reason, Solution
from .reading import Call
from .schema import (
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    CompletionDetails,
    PromptDetails,
    ReplyMessage,
    ReplyUsage,
    SearchReport,
    SearchUsage,
    TextChoice,
    TextCompletion,
    ToolCall,
)
from .stops import content_of
from .telling import completion_logprobs, token_logprobs

Finish = Literal["stop", "length", "tool_calls"]

_LIMITS = frozenset({Reason.BUDGET, Reason.DEADLINE})
_CUT = frozenset({str(stop) for stop in (Stop.LENGTH, Stop.BUDGET, Stop.CONTEXT)})


class Reply:
    """What stays the same over all parts of one answer. `kind` is the prefix of its id."""

    def __init__(self, call: Call, info: ModelInfo, kind: Literal["chatcmpl", "cmpl"]) -> None:
        self.call = call
        self.info = info
        self.id = f"{kind}-{secrets.token_hex(12)}"
        self.created = int(time())
        self.fingerprint = f"bw_{info.weights_digest[:12]}" if info.weights_digest else None

    def chat(self, solutions: Sequence[Solution]) -> ChatCompletion:
        """The body of a chat that is not streamed."""
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.call.model,
            choices=[self._chat_choice(index, solution) for index, solution in enumerate(solutions)],
            usage=usage_of(solutions, self.call.choices),
            system_fingerprint=self.fingerprint,
        )

    def text(self, solutions: Sequence[Solution]) -> TextCompletion:
        """The body of a completion that is not streamed."""
        return TextCompletion(
            id=self.id,
            created=self.created,
            model=self.call.model,
            choices=[self._text_choice(index, solution) for index, solution in enumerate(solutions)],
            usage=usage_of(solutions, self.call.choices),
            system_fingerprint=self.fingerprint,
        )

    def _chat_choice(self, index: int, solution: Solution) -> ChatChoice:
        content, cut = content_of(solution, self.call.stops)
        told = None
        if self.call.logprobs is not None:
            told = ChatLogprobs(content=token_logprobs(solution.written, self.info, len(content)))
        return ChatChoice(
            index=index,
            message=ReplyMessage(
                content=content,
                reasoning_content=solution.thinking or None,
                tool_calls=calls_of(solution, cut=cut) or None,
            ),
            finish_reason=finish_of(solution, cut=cut),
            logprobs=told,
            search=report_of(solution),
        )

    def _text_choice(self, index: int, solution: Solution) -> TextChoice:
        text, cut = content_of(solution, self.call.stops)
        told = None
        if self.call.logprobs is not None:
            told = completion_logprobs(solution, self.info, len(text))
        return TextChoice(
            index=index,
            text=self.call.asks[index].echo + text,
            finish_reason="length" if finish_of(solution, cut=cut) == "length" else "stop",
            reasoning_content=solution.thinking or None,
            logprobs=told,
            search=report_of(solution),
        )


def finish_of(solution: Solution, *, cut: bool) -> Finish:
    """Why the answer ends where it does: calls for the client, else a spent budget, a cut candidate or a
    missing answer phase are "length"."""
    if solution.calls and not cut:
        return "tool_calls"
    if solution.reason in _LIMITS:
        return "length"
    if cut:
        return "stop"
    written = solution.written
    if not solution.candidates:
        return "length"
    unanswered = bool(written.tokens) and written.conclusion_start == len(written.tokens)
    return "length" if unanswered or written.stop in _CUT else "stop"


def calls_of(solution: Solution, *, cut: bool) -> list[ToolCall]:
    """The calls that the client is to run, none behind a stop string that `cut` the text. Each time it is
    asked, they get new ids."""
    if cut:
        return []
    return [
        ToolCall(
            id=f"call_{secrets.token_hex(12)}",
            function=CalledFunction(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False)),
        )
        for call in solution.calls
    ]


def report_of(solution: Solution) -> SearchReport:
    """How the search ended."""
    return SearchReport(
        answer=solution.answer,
        score=_finite(solution.score),
        verified=solution.verified,
        reason=str(solution.reason),
        seed=solution.seed,
        strategy=solution.strategy,
        candidates=len(solution.candidates),
        notes=list(solution.notes),
    )


def usage_of(solutions: Sequence[Solution], choices: int) -> ReplyUsage:
    """What all searches of a request spent. A prompt is counted once: its `choices` share it."""
    spent = sum(solution.usage.tokens for solution in solutions)
    prompt = sum(solution.usage.prompt_tokens for solution in solutions[::choices])
    thinking = sum(solution.written.conclusion_start for solution in solutions)
    content = sum(len(s.written.tokens) - s.written.conclusion_start for s in solutions)
    cached = sum(solution.usage.engine.get("cached_tokens") or 0 for solution in solutions[::choices])
    return ReplyUsage(
        prompt_tokens=prompt,
        completion_tokens=spent,
        total_tokens=prompt + spent,
        prompt_tokens_details=PromptDetails(cached_tokens=min(cached, prompt)),
        completion_tokens_details=CompletionDetails(
            reasoning_tokens=max(0, spent - content),
            thinking_tokens=thinking,
            discarded_tokens=sum(solution.usage.discarded_tokens for solution in solutions),
        ),
        search=SearchUsage(
            flops=sum(solution.usage.flops for solution in solutions),
            scored_tokens=sum(solution.usage.scored_tokens for solution in solutions),
            engine=[_plain(solution.usage.engine) for solution in solutions],
        ),
    )


def _plain(figures: dict[str, Any]) -> dict[str, Any]:
    return msgspec.to_builtins(figures)


def _finite(value: float | None) -> float | None:
    """JSON has no infinities."""
    return value if value is None or math.isfinite(value) else None
