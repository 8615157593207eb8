"""Servers that answer with what cannot be: one line each, nothing paid that did not come, and no hang."""

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import msgspec
import pytest
from branchwise.engine.errors import ServerFailed
from branchwise.engine.protocol import EngineUsage, ScoreParams
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.grammar import Constraint, json_grammar
from branchwise.engine.text.stop import Stop
from support.raw_server import DONE, RawServer, Reply, event, head, usage
from support.remote import END, FAST, PROMPT, Purse, extending, run, text_of
from support.scripted import CharTokenizer

IMPATIENT = msgspec.structs.replace(FAST, silence_s=0.1, usage_s=0.05)


def written(reply: Reply, purse: Purse, account: EngineUsage | None = None, **options: Any) -> Any:
    """What one extension makes of it, and how many requests that took."""
    server, retry = RawServer(reply), options.pop("retry", FAST)

    async def body(engine: RemoteEngine) -> Any:
        seq = engine.open(PROMPT, seed=1, usage=account)
        return await engine.extend(seq, extending(**options), purse)

    return run(body, server, retry=retry), len(server.requests)


def refused(reply: Reply, **options: Any) -> tuple[str, int]:
    """What is said, in one line, and how many requests it took; everything came back."""
    purse = Purse(50)
    server, retry = RawServer(reply), options.pop("retry", FAST)

    async def body(engine: RemoteEngine) -> str:
        with pytest.raises(ServerFailed) as caught:
            await engine.extend(engine.open(PROMPT, seed=1), extending(**options), purse)
        return str(caught.value)

    said = run(body, server, retry=retry)
    assert purse.left == 50 - purse.paid
    assert said.startswith(server.url)
    assert "\n" not in said
    return said, len(server.requests)


def test_tokens_beyond_those_asked_for_are_left_and_not_paid():
    """Also where the server never stops writing."""
    purse = Purse(20)
    extension, requests = written(lambda _, body: [head(), *[event("a")] * 50], purse, max_tokens=12)
    assert (text_of(extension.tokens), extension.stop, requests) == ("a" * 12, Stop.LENGTH, 2)
    assert purse.paid == 12

    extension, _ = written(lambda _, body: _endless(event("ab")), Purse(), max_tokens=12)
    assert text_of(extension.tokens) == "ab" * 6


def _endless(part: bytes) -> Iterator[bytes | float]:
    yield head()
    yield from repeat(part)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (event("a", token_ids=[999]), "token 999 is none of the 128 of the vocabulary here"),
        (event("a", token_ids=[-1]), "token -1 is none"),
        (event("a", logprob=3.5), "3.5 is no log-probability"),
        (event("").replace(b'"token_logprobs":[]', b'"token_logprobs":[NaN]'), "cannot be read"),
        (event("").replace(b'"token_ids":[]', b'"token_ids":"abc"'), "cannot be read"),
        (b'data: {"choices": [{"text": "a"\n\n', "cannot be read"),
        (b"data: \xff\xfe\n\n", "cannot be read"),
        (b'data: {"error": {"message": "out of\\nmemory"}}\n\n', "out of memory"),
        (b'{"choices": []}\n', "the stream ended before the completion did"),
        (event("", finish="abort") + DONE, "ended the completion without a token"),
        (DONE, "ended the completion without a token"),
    ],
)
def test_a_reply_that_cannot_be_is_told_in_one_line(first: bytes, said: str):
    told, _ = refused(lambda _, body: [head(), first])
    assert said in told


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (head("307 Temporary Redirect", location="http://there/v1"), "307 redirects to http://there/v1"),
        (
            head(kind="text/html") + b"<h1>Log\nin</h1>",
            "the reply is text/html, not text/event-stream: <h1>Log in",
        ),
        (head(kind="application/json") + b'{"error": {"message": "no"}}', "not text/event-stream: no"),
        (head("401 Unauthorized", kind="application/json") + b'{"detail": "key"}', "401 key"),
    ],
)
def test_what_is_no_stream_of_events_is_refused_at_once(start: bytes, said: str):
    told, requests = refused(lambda _, body: [start])
    assert said in told
    assert requests == 1


def test_a_body_that_is_not_encoded_as_it_says_is_tried_again_and_told():
    told, requests = refused(lambda _, body: [head(content_encoding="gzip"), event("a"), DONE])
    assert "given up after 3 tries" in told
    assert requests == 3


def test_half_an_event_is_a_broken_stream_which_is_tried_again_from_the_last_token():
    def reply(before: int, body: dict[str, Any]) -> list[bytes | float]:
        if not before:
            return [head(), event("ab"), event("c")[:20]]
        assert text_of(body["prompt"]) == text_of(PROMPT) + "ab"
        return [head(), event("cd$", finish="stop"), usage(4, 0), DONE]

    purse = Purse()
    extension, requests = written(reply, purse)
    assert (text_of(extension.tokens), requests, purse.paid) == ("abcd$", 2, 5)


def test_comments_other_fields_and_other_line_ends_are_read_over():
    parts = [
        b": ping\r\n\r\n",
        b"event: completion\r\nid: 7\r\n",
        event("a").replace(b"\n", b"\r\n"),
        b"\r\n",
    ]
    parts += [b"retry: 10\n\n", event("$", finish="stop").replace(b"data: ", b"data:"), DONE]
    extension, _ = written(lambda _, body: [head(), *parts], Purse())
    assert (text_of(extension.tokens), extension.stop) == ("a$", Stop.EOS)


@pytest.mark.parametrize("part", [b": still here\n\n", event("", token_ids=[]), usage(2, 0)])
def test_a_server_that_sends_anything_but_tokens_has_failed_in_the_end(part: bytes):
    def reply(_: int, body: dict[str, Any]) -> Iterator[bytes | float]:
        yield head()
        while True:
            yield part
            yield 0.01

    told, requests = refused(reply, retry=IMPATIENT)
    assert "no token for 0.1 s (given up after 3 tries)" in told
    assert requests == 3


def test_figures_behind_the_last_token_are_not_waited_for_for_long():
    def reply(_: int, body: dict[str, Any]) -> Iterator[bytes | float]:
        yield head()
        yield event("ab$", finish="stop")
        while True:
            yield b": still here\n\n"
            yield 0.01

    patient_with_tokens = msgspec.structs.replace(IMPATIENT, silence_s=60.0)
    extension, requests = written(reply, Purse(), retry=patient_with_tokens)
    assert (text_of(extension.tokens), requests) == ("ab$", 1)


@pytest.mark.parametrize("told", [(4, -3), (4, 9), (-7, 0), (4, None)])
def test_figures_that_cannot_be_are_not_known(told: tuple[int, int | None]):
    account = EngineUsage()
    written(lambda _, body: [head(), event("ab$", finish="stop"), usage(*told), DONE], Purse(), account)
    assert {"cached_tokens", "prefill_tokens", "recomputed_tokens"} <= set(account.unknown)
    assert (account.cached_tokens, account.prefill_tokens, account.recomputed_tokens) == (0, 2, 0)


def test_figures_that_come_with_each_chunk_count_once():
    account = EngineUsage()
    parts = [head(), event("a"), usage(2, 1), event("b$", finish="stop"), usage(2, 1), usage(2, 1), DONE]
    written(lambda _, body: parts, Purse(), account)
    assert (account.cached_tokens, account.prefill_tokens) == (1, 1)


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ([event("", finish="length"), DONE], "without a token"),
        ([event("x")], "none of those that fit the schema"),
    ],
)
def test_a_server_that_does_not_draw_again_is_not_asked_for_ever(again: list[bytes], said: str):
    pytest.importorskip("llguidance")
    grammar = json_grammar({"type": "integer"}, CharTokenizer(), END, CharTokenizer.vocab_size)

    def reply(before: int, body: dict[str, Any]) -> list[bytes | float]:
        return [head(), *(again if before else [event("x")])]

    told, requests = refused(reply, constraint=Constraint(grammar, len(PROMPT)))
    assert said in told
    assert requests == 2


def test_a_token_that_was_not_to_be_chosen_is_refused():
    sampling = SamplingParams(temperature=0.0, allowed_tokens=(ord("y"), ord("n")))
    told, _ = refused(lambda _, body: [head(), event("a")], sampling=sampling)
    assert "token 97, which is none of those that it was to choose from" in told


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [
                head(kind="application/json"),
                b'{"choices": [{"logprobs": {"tokens": [], "token_logprobs": [NaN',
            ],
            "reply",
        ),
        ([head(kind="application/json"), b'{"choices": []}'], "lacks log-probabilities"),
        ([head("302 Found", location="/login")], "302 redirects to /login"),
    ],
)
def test_scores_that_cannot_be_are_told_in_one_line_and_paid_back(parts: list[bytes], said: str):
    purse, server = Purse(), RawServer(lambda _, body: parts)

    async def body(engine: RemoteEngine) -> str:
        with pytest.raises(ServerFailed) as caught:
            await engine.score(engine.open(PROMPT, seed=1), ScoreParams(logprobs_from=1), purse)
        return str(caught.value)

    told = run(body, server)
    assert said in told
    assert not purse.committed


def test_scores_that_dribble_for_ever_are_not_waited_for():
    def reply(_: int, body: dict[str, Any]) -> Iterator[bytes | float]:
        yield head(kind="application/json")
        while True:
            yield b" "
            yield 0.01

    server = RawServer(reply)

    async def body(engine: RemoteEngine) -> None:
        with pytest.raises(ServerFailed, match="no whole reply within"):
            await engine.score(engine.open(PROMPT, seed=1), ScoreParams(logprobs_from=1), Purse())

    run(body, server, retry=IMPATIENT)
