"""What keys keep apart, what a server refuses, what leaving ends, and what logs hold."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs httpx")
pytest.importorskip("litestar", reason="needs branchwise[serve]")

import httpx
import yaml
from branchwise import UsageError
from branchwise.serve.keys import KeyEntry, KeyRing, read_keys
from branchwise.serve.settings import Limits
from branchwise.strategies.registry import strategy_names
from support.serving import ServerThread, settings_for, wait_until

LONG = "Use 3, 7, 12 and 18 to make 45"
SUM = "12 + 7*3 - 5"
SLOW: dict[str, Any] = {
    "strategy": "best_of_n(n=none, select=majority, stop_on_verified=false)",
    "budget": {"tokens": 20_000},
}
"""A search of some seconds."""


def chat(server: ServerThread, key: str = "x", problem: str = SUM, **body: Any) -> Any:
    """One whole answer."""
    return httpx.post(
        f"{server.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": "reference", "messages": [{"role": "user", "content": problem}], "seed": 1, **body},
        timeout=60,
    )


def cached(reply: Any) -> int:
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[ServerThread]:
    """A server with two keys; the second has small quotas."""
    keys = {
        "alice": KeyEntry(key="alice-key"),
        "bob": KeyEntry(key="robert-key"),
        "carol": KeyEntry(key="carol-key", tokens_per_minute=500),
        "dave": KeyEntry(key="david-key", running=1, waiting=0),
    }
    with ServerThread(settings_for(keys=KeyRing(keys))) as thread:
        yield thread


def test_a_second_keys_prompt_is_not_cached(guarded: ServerThread) -> None:
    problem = "12 + 7*3 - 5 + 13*4"
    first = chat(guarded, "alice-key", problem, strategy="greedy")
    again = chat(guarded, "alice-key", problem, strategy="greedy")
    other = chat(guarded, "robert-key", problem, strategy="greedy")
    assert first.json()["choices"] == again.json()["choices"] == other.json()["choices"]
    assert cached(first) == 0
    assert cached(again) > 0
    assert cached(other) == 0


def test_the_page_of_the_tree_needs_no_key_and_may_not_be_framed(guarded: ServerThread) -> None:
    answer = httpx.get(f"{guarded.url}/ui")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert '"keyed":true' in answer.text
    assert "alice" not in answer.text


def test_a_namespace_in_the_body_is_ignored(guarded: ServerThread) -> None:
    problem = "11 + 8*3 - 4 + 12*4"
    chat(guarded, "alice-key", problem, strategy="greedy")
    namespace = guarded_namespace(guarded, "alice-key")
    fields = {"namespace": namespace, "tenant": namespace, "cache_salt": namespace, "user": "alice"}
    assert cached(chat(guarded, "robert-key", problem, strategy="greedy", **fields)) == 0


def test_keys_of_a_server_without_a_key_file_are_kept_apart_too(server: ServerThread) -> None:
    problem = "13 + 9*3 - 4 + 12*4"
    for key in ("one", "two"):
        assert cached(chat(server, key, problem, strategy="greedy")) == 0
    assert cached(chat(server, "one", problem, strategy="greedy")) > 0


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic alice-key"}]
)
@pytest.mark.parametrize("path", ["chat/completions", "completions", "models", "models/reference"])
def test_without_a_key_nothing_is_told(guarded: ServerThread, header: dict[str, str], path: str) -> None:
    url = f"{guarded.url}/v1/{path}"
    reply = httpx.get(url, headers=header) if "models" in path else httpx.post(url, headers=header, json={})
    assert reply.status_code == 401
    assert reply.json()["error"]["code"] == "invalid_api_key"


def test_health_needs_no_key(guarded: ServerThread) -> None:
    assert httpx.get(f"{guarded.url}/healthz").json()["status"] == "ok"


def test_a_keys_minute_of_tokens_is_hard(guarded: ServerThread) -> None:
    used = chat(
        guarded, "carol-key", LONG, strategy="best_of_n(n=8, select=majority)", budget={"tokens": 450}
    )
    refused = chat(guarded, "carol-key", budget={"tokens": 450})
    assert used.status_code == 200
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert chat(guarded, "carol-key", budget={"tokens": 501}).status_code == 400


def test_a_request_beyond_the_line_is_refused_and_one_of_another_key_is_not(guarded: ServerThread) -> None:
    body = SLOW | {"budget": {"tokens": 4000}}
    slow = threading.Thread(target=chat, args=(guarded, "david-key", LONG), kwargs=body)
    slow.start()
    wait_until(lambda: running(guarded) == 1, "a running search")
    refused, other = chat(guarded, "david-key"), chat(guarded, "alice-key")
    slow.join()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["Retry-After"]) >= 1
    assert other.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_search_and_frees_all_of_it(server: ServerThread, stream: bool) -> None:
    leave_a_stream(server) if stream else leave_unanswered(server)
    wait_until(lambda: running(server) == 0, "no running search")
    wait_until(lambda: not server.live_sequences(), "no live sequence")
    wait_until(lambda: server.owned_blocks() == 0, "no owned block")


def test_a_client_that_leaves_amid_its_body_is_no_error_of_the_server(server: ServerThread) -> None:
    head = "POST /v1/completions HTTP/1.1\r\nHost: server\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f'{head}Content-Length: 1000\r\n\r\n{{"model": '.encode())
    wait_until(lambda: "/v1/completions" in statuses(server, 499), "a request that its client left")
    assert statuses(server, 500) == set()


def statuses(server: ServerThread, status: int) -> set[str]:
    """The paths of which requests ended in this status."""
    text = httpx.get(f"{server.url}/metrics").text
    return set(re.findall(rf'http_requests_total{{path="([^"]*)",status="{status}"}}', text))


def leave_unanswered(server: ServerThread) -> None:
    """Ask, and go before the answer."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/chat/completions", json=slow_body(), timeout=0.4)


def leave_a_stream(server: ServerThread) -> None:
    """Read the begin of a stream, and go."""
    body = slow_body(stream=True)
    with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=20) as reply:
        assert next(reply.iter_lines()).startswith("data: ")
        assert running(server) == 1


def slow_body(**more: Any) -> dict[str, Any]:
    return {"model": "reference", "messages": [{"role": "user", "content": LONG}], **SLOW, **more}


def running(server: ServerThread) -> int:
    return httpx.get(f"{server.url}/healthz").json()["running"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", strategy_names())
def test_every_strategy_is_served_or_refused_with_its_reason(server: ServerThread, strategy: str) -> None:
    reply = chat(server, problem=LONG, model=f"reference:{strategy}", budget={"tokens": 200})
    body = reply.json()
    if reply.status_code == 200:
        assert 0 < body["usage"]["completion_tokens"] <= 200
    else:
        assert reply.status_code == 400
        assert strategy in body["error"]["message"]
    wait_until(lambda: not server.live_sequences(), "no live sequence")


def test_a_body_that_is_too_large_is_refused(server: ServerThread) -> None:
    reply = chat(server, problem="1" * 70_000)
    assert reply.status_code == 413
    assert "65536 bytes" in reply.json()["error"]["message"]
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_what_is_no_request_is_answered_in_the_same_shape(server: ServerThread) -> None:
    url, kind = f"{server.url}/v1/chat/completions", {"content-type": "application/json"}
    asked = [
        (httpx.post(url, content=b"{", headers=kind), 400, "truncated"),
        (httpx.post(url, content=b"\xff\xfe", headers=kind), 400, "malformed"),
        (httpx.post(url, content=b"", headers=kind), 400, "empty"),
        (httpx.post(url, content=b"[" * 50_000, headers=kind), 400, "nested too deeply"),
        (httpx.post(url, json=[]), 400, "object"),
        (httpx.post(url, json={"model": 3}), 400, "model"),
        (httpx.post(url, json={"model": "reference"}), 400, "`messages`"),
        (httpx.post(url, data={"model": "reference"}), 400, "give JSON"),
        (httpx.post(url, files={"file": b"x"}), 400, "give JSON"),
        (httpx.get(url), 405, "the method here is POST"),
        (httpx.post(f"{server.url}/healthz"), 405, "the method here is GET"),
        (httpx.post(f"{server.url}/v1/responses", json={}), 404, "not served here; give /v1/chat/"),
    ]
    for reply, status, said in asked:
        assert reply.status_code == status
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert said in error["message"]
        assert "\n" not in error["message"]
    assert [reply.headers["Allow"] for reply, status, _ in asked if status == 405] == ["POST", "GET"]
    assert asked[6][0].json()["error"]["param"] == "messages"


def test_metrics_tell_of_the_engine_and_the_server(server: ServerThread) -> None:
    chat(server)
    text = httpx.get(f"{server.url}/metrics").text
    for name in ("branchwise_blocks", "branchwise_searches_running", 'http_requests_total{path="/v1/chat'):
        assert name in text
    assert SUM not in text


def test_the_api_describes_itself(server: ServerThread) -> None:
    api = httpx.get(f"{server.url}/docs/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models"} <= set(api["paths"])
    assert yaml.safe_load(httpx.get(f"{server.url}/docs/openapi.yaml").text) == api


def test_the_page_of_the_api_names_all_of_it_and_no_other_host(server: ServerThread) -> None:
    api = httpx.get(f"{server.url}/docs/openapi.json").json()
    page = httpx.get(f"{server.url}/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in (*api["paths"], *api["components"]["schemas"], "reasoning_effort"):
        assert name in page.text
    assert not re.findall(r"//|<script|<iframe|@import|url\(", page.text)
    for link in re.findall(r"href='([^'#]+)'", page.text):
        assert httpx.get(f"{server.url}{link}").status_code == 200


def test_no_log_line_holds_the_text_of_a_prompt_or_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    limits = Limits(body_bytes=64 * 1024)
    with ServerThread(settings_for(limits=limits)) as thread:
        answers = [
            chat(thread, problem="Use 3, 7 and 12 to make 43"),
            chat(thread, problem="the secret plan"),
            chat(thread, problem="Use 3, 7 and 12 to make 43", strategy="nonsense"),
            chat(thread, key="hidden-key", problem="12 + 7*3 - 5", stream=True),
        ]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 200]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["status"] for line in lines] == [200, 400, 400, 200]
    text = json.dumps(lines)
    for secret in ("make 43", "12*3", "secret", "7*3", "hidden-key", "nonsense"):
        assert secret not in text
    assert lines[0]["tokens"] > 0
    assert lines[0]["strategy"] == "best_of_n"


def test_a_key_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    digest = "81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9"
    path.write_text(f'[keys.a]\nkey = "a-long-key"\nrunning = 2\n[keys.b]\nsha256 = "{digest}"\n')
    ring = read_keys(path)
    first, second = ring.caller("Bearer a-long-key"), ring.caller("bearer bob")
    assert (first.name, first.quota.running, second.name) == ("a", 2, "b")
    assert first.namespace != second.namespace
    assert "a" != first.namespace != read_keys(path).caller("Bearer a-long-key").namespace


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "keys"),
        ("[keys]", "names no key"),
        ("[keys.a]", "either"),
        ('[keys.a]\nkey = "short"', "length"),
        ('[keys.a]\nkey = "long-enough"\nrunnning = 2', "runnning"),
        ("[keys.a", "keys.toml"),
        ('[keys.a]\nkey = "the-same-key"\n[keys.b]\nkey = "the-same-key"', "'a' and 'b' are one key"),
        ('[keys.a]\nkey = "not-ascii-\u00fc"', "pattern|regex"),
    ],
)
def test_a_key_file_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        read_keys(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_keys(tmp_path / "none.toml")


def guarded_namespace(guarded: ServerThread, key: str) -> str:
    return guarded.settings.keys.caller(f"Bearer {key}").namespace
