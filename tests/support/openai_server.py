"""An OpenAI-compatible server in the test's own event loop: what it writes is a script's, and it can be made
slow, faulty, plain or dead.
"""

import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.abc
import h11
import msgspec
from branchwise.engine.text.grammar import GrammarState, json_grammar
from branchwise.engine.text.tokenizer import Message, Tokenizer

from .http_reply import Reply

Write = Callable[[Sequence[int], int], int]
"""(ids so far, the request's seed) -> the next id."""

PLAIN = frozenset(
    {
        "echo",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "model",
        "prompt",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
    }
)
"""What a server without extensions takes."""
LOGPROB = -0.5


class Server(Protocol):
    """What listens at `url` once it runs."""

    url: str

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None: ...


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a completion: another status, or the connection cut behind `after` tokens."""

    status: int | None = None
    after: int | None = None
    retry_after: str | None = None


class StandInServer:
    """One server. `faults` meet the next completions in turn. `requests` are their bodies, `written` the
    tokens sent, `dropped` the streams that the client left before their end.

    Without `ids` it takes and tells text only; without `extensions` it refuses what OpenAI's has not. A token
    that it may not write (by the parameter `restriction`, or `response_format`) gives way to one that it may.
    It refuses requests with the fields `refuses`.
    """

    def __init__(
        self,
        write: Write,
        tokenizer: Tokenizer,
        eos: frozenset[int],
        *,
        root: str = "",
        name: str = "policy",
        context: int = 4000,
        ids: bool = True,
        extensions: bool = True,
        most_logprobs: int = 20,
        least_tokens: int = 0,
        tokenizes: bool = False,
        delay_s: float = 0.0,
        restriction: str | None = None,
        refuses: Sequence[str] = (),
    ) -> None:
        self._write = write
        self._tokenizer = tokenizer
        self._eos = eos
        self.root = root
        self._name = name
        self._context = context
        self._ids = ids
        self._extensions = extensions
        self._most_logprobs = most_logprobs
        self._least_tokens = least_tokens
        self._tokenizes = tokenizes
        self.delay_s = delay_s
        usual = "allowed_token_ids" if extensions else "logit_bias"
        self._restriction = usual if restriction is None else restriction
        self._refuses = frozenset(refuses)
        self.faults: deque[Fault] = deque()
        self.requests: list[dict[str, Any]] = []
        self.written = 0
        self.dropped = 0
        self.streaming = 0
        self.url = ""
        self._scope: anyio.CancelScope | None = None
        self._left = anyio.Event()
        self._seen: list[tuple[str, tuple[int, ...]]] = []

    def kill(self) -> None:
        """Cut all connections and listen no more."""
        assert self._scope is not None
        self._scope.cancel()

    async def idle(self) -> None:
        """Wait until no stream is open."""
        while self.streaming:
            self._left = anyio.Event()
            await self._left.wait()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        self.url = f"http://127.0.0.1:{port}/v1"
        with anyio.CancelScope() as self._scope:
            task_status.started()
            async with listener:
                await listener.serve(self._connection)

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            connection = h11.Connection(h11.SERVER)
            with contextlib.suppress(
                anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError
            ):
                while await self._serve_one(stream, connection):
                    connection.start_next_cycle()

    async def _serve_one(self, stream: anyio.abc.SocketStream, connection: h11.Connection) -> bool:
        """Answer one request; whether another may follow."""
        request, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                try:
                    connection.receive_data(await stream.receive())
                except anyio.EndOfStream:
                    connection.receive_data(b"")
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        assert request is not None
        reply = Reply(stream, connection)
        if request.method == b"GET":
            served = {"id": self._name, "root": self.root, "max_model_len": self._context}
            await reply.whole(200, {"object": "list", "data": [served]})
        elif request.target.endswith(b"/completions"):
            await self._complete(reply, msgspec.json.decode(body))
        elif self._tokenizes:
            await reply.whole(200, self._tokenized(msgspec.json.decode(body)))
        else:
            await reply.whole(404, {"detail": "Not Found"})
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _complete(self, reply: Reply, body: dict[str, Any]) -> None:
        self.requests.append(body)
        fault = self.faults.popleft() if self.faults else Fault()
        if fault.status is not None:
            await reply.whole(fault.status, self._error("injected"), retry_after=fault.retry_after)
            return
        if (refusal := self._refusal(body)) is not None:
            await reply.whole(400, self._error(refusal))
            return
        prompt = body["prompt"]
        ids = prompt if isinstance(prompt, list) else self._tokenizer.encode(prompt)
        if body.get("echo"):
            if body["max_tokens"] < self._least_tokens:
                await reply.whole(400, self._error("max_tokens must be positive"))
                return
            count = len(ids) + body["max_tokens"]
            told = {"tokens": [""] * count, "token_logprobs": [None, *[LOGPROB] * (count - 1)]}
            await reply.whole(
                200,
                {
                    "choices": [{"text": self._tokenizer.decode(ids), "logprobs": told}],
                    "usage": self._usage(body, ids, []),
                },
            )
            return
        events = self._events(body, list(ids))
        if body.get("stream"):
            await self._stream(reply, events, fault)
            return
        chunks = [event async for event in events]
        await reply.whole(200, chunks[0] | {"usage": chunks[-1]["usage"]})

    def _error(self, message: str) -> dict[str, Any]:
        return {"error": {"message": message}}

    def _tokenized(self, body: dict[str, Any]) -> dict[str, Any]:
        """`/tokenize` of a text or a chat, `/detokenize`."""
        if "tokens" in body:
            return {"prompt": self._tokenizer.decode(body["tokens"])}
        if "messages" in body:
            messages = [Message(turn["role"], turn["content"]) for turn in body["messages"]]
            return {"tokens": self._tokenizer.chat(messages)}
        return {"tokens": self._tokenizer.encode(body["prompt"])}

    def _refusal(self, body: dict[str, Any]) -> str | None:
        if not self._ids and not isinstance(body["prompt"], str):
            return "the prompt must be a string"
        if not self._extensions and (unknown := set(body) - PLAIN):
            return f"unknown fields {sorted(unknown)}"
        if unknown := self._refuses & set(body):
            return f"unknown fields {sorted(unknown)}"
        if (body.get("logprobs") or 0) > self._most_logprobs:
            return f"at most {self._most_logprobs} logprobs"
        if body["model"] != self._name:
            return f"no model {body['model']}"
        return None

    async def _events(self, body: dict[str, Any], ids: list[int]) -> AsyncGenerator[dict[str, Any]]:
        """One event per token, then the usage."""
        begin, stops = len(ids), {*self._eos, *body.get("stop_token_ids", ())}
        grammar = self._grammar(body)
        limit = min(body["max_tokens"], self._context - begin)
        reason: str | None = None
        while reason is None:
            token = self._among(self._write(ids, body.get("seed", 0)), ids, body, grammar)
            ids.append(token)
            if grammar is not None:
                grammar.push(token)
            matched = self._matched(body, ids[begin:], stops)
            if matched is not None or (grammar is not None and grammar.finished):
                reason = "stop"
            elif len(ids) - begin >= limit:
                reason = "length"
            yield {"choices": [self._choice(body, token, reason, matched)]}
        yield {"choices": [], "usage": self._usage(body, ids[:begin], ids[begin:])}

    def _matched(self, body: dict[str, Any], written: Sequence[int], stops: set[int]) -> int | str | None:
        """The stop that the last token completed."""
        if written[-1] in stops:
            return written[-1]
        text = self._tokenizer.decode(written)
        return next((string for string in body.get("stop", ()) if text.endswith(string)), None)

    def _grammar(self, body: dict[str, Any]) -> GrammarState | None:
        """That of `response_format`, from the first token of the completion on."""
        if "response_format" not in body:
            return None
        schema = body["response_format"]["json_schema"]["schema"]
        size = self._tokenizer.vocab_size
        return json_grammar(schema, self._tokenizer, self._eos, size).begin([], size)

    def _among(
        self, token: int, ids: Sequence[int], body: dict[str, Any], grammar: GrammarState | None
    ) -> int:
        """`token` where it may stand there, else one of those that may, drawn by the seed."""
        told = body.get(self._restriction)
        if told is not None:
            highest = max(told.values()) if isinstance(told, dict) else 0.0
            told = [int(one) for one in told if not isinstance(told, dict) or told[one] == highest]
        if grammar is not None and (fitting := grammar.allowed()) is not None:
            told = [one for one in told or range(len(fitting)) if fitting[one]]
        if told is None or token in told:
            return token
        highest_two = sorted(told)[-2:]  # there is little white space among them
        return random.Random(f"{body.get('seed')} {len(ids)}").choice(highest_two)

    def _choice(
        self, body: dict[str, Any], token: int, reason: str | None, matched: int | str | None
    ) -> dict[str, Any]:
        text = "" if token in self._eos else self._tokenizer.decode([token])
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason}
        choice["stop_reason"] = None if matched in self._eos else matched
        if body.get("return_token_ids") and self._ids:
            choice["token_ids"] = [token]
        if (count := body.get("logprobs")) is not None:
            top = {f"token_id:{token + i}": LOGPROB - i for i in range(max(1, count))}
            choice["logprobs"] = {"tokens": [text], "token_logprobs": [LOGPROB], "top_logprobs": [top]}
        return choice

    def _usage(self, body: dict[str, Any], prompt: list[int], written: list[int]) -> dict[str, Any]:
        """As a server with a cache of single positions, one per salt."""
        salt = body.get("cache_salt", "")
        cached = max((_common(prompt, seen) for own, seen in self._seen if own == salt), default=0)
        self._seen.append((salt, (*prompt, *written)))
        details = {"cached_tokens": min(cached, len(prompt) - 1)}
        return {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(written),
            "prompt_tokens_details": details,
        }

    async def _stream(self, reply: Reply, events: AsyncGenerator[dict[str, Any]], fault: Fault) -> None:
        """Send events until their end, the fault, or the client's leaving."""
        self.streaming += 1
        ended = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(reply.watch, group.cancel_scope)
                with contextlib.suppress(anyio.BrokenResourceError):  # left while something was sent
                    await self._send_events(reply, events, fault)
                    ended = True
                group.cancel_scope.cancel()
        finally:
            await events.aclose()
            self.streaming -= 1
            self.dropped += not ended
            self._left.set()

    async def _send_events(self, reply: Reply, events: AsyncGenerator[dict[str, Any]], fault: Fault) -> None:
        await reply.begin()
        sent = 0
        async for event in events:
            if sent == fault.after:
                await reply.cut()
                return
            await anyio.sleep(self.delay_s)
            await reply.event(event)
            if event["choices"]:
                sent += 1
                self.written += 1
        await reply.end()


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


@asynccontextmanager
async def serving(*servers: Server) -> AsyncGenerator[None]:
    """The servers listen inside the block."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        for server in servers:
            await group.start(server.run)
        try:
            yield
        except Exception as error:  # raised below: a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
