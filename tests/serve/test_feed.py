"""The stream of several choices: each ends when its own search does."""

from typing import Any

import anyio
import msgspec
import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from branchwise.serve.answer import Reply
from branchwise.serve.chunks import ChatChunks
from branchwise.serve.reading import read_chat
from branchwise.serve.schema import ChatRequest
from branchwise.serve.streaming import DONE, Feed
from branchwise.strategies.greedy import Greedy
from support.scripted import PLAIN
from support.searching import scripted, solve
from support.serving import settings_for


def finished(part: bytes) -> list[int]:
    """The choices that end in a part of the stream."""
    frames = [frame for frame in part.split(b"\n\n") if frame and frame + b"\n\n" != DONE]
    chunks: list[Any] = [msgspec.json.decode(frame.removeprefix(b"data: ")) for frame in frames]
    return [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]


def test_a_choice_ends_while_the_search_of_another_goes_on() -> None:
    engine = scripted(lambda prompt, seed: "yes$", profile=PLAIN)
    solution, info = solve(engine, Greedy()), engine.models["policy"]
    body = {"model": "m", "messages": [{"role": "user", "content": "task"}], "n": 2, "stream": True}
    call = read_chat(msgspec.convert(body, ChatRequest), settings_for(name="m"), info)

    async def main() -> None:
        feed = Feed(call, info, ChatChunks(Reply(call, info, "chatcmpl")))
        parts = feed.parts(keep_alive_s=60.0)
        assert finished(await anext(parts)) == []
        feed.choose(1, solution)
        assert finished(await anext(parts)) == [1]
        feed.choose(0, solution)
        feed.finish([solution, solution])
        rest = [part async for part in parts]
        assert finished(b"".join(rest)) == [0]
        assert rest[-1].endswith(DONE)

    anyio.run(main)
