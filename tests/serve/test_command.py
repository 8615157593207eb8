"""`branchwise serve` as a process: it says where it listens, ends on a signal, and refuses in one line."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("httpx", reason="needs httpx")

import httpx
from branchwise import UsageError
from branchwise.serve.command import app

COMMAND = [sys.executable, "-m", "branchwise.serve.command", "--threads", "1"]


@pytest.mark.slow
def test_it_says_where_it_listens_and_ends_on_a_signal() -> None:
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--name", "mine"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("serving mine on "))
        url = line.split()[3].removesuffix("/v1,")
        assert httpx.get(f"{url}/healthz").json()["model"] == "mine"
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "mine"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budget", "tokens=9", "--ceiling", "tokens=5"], "above --ceiling"),
        (["--ceiling", "seconds=5"], "must limit tokens"),
        (["--api-keys", "/no/such/file"], "cannot be read"),
        (["--strategy", "best_of_m"], "best_of_n"),
        (["--port", "70000"], "--port"),
        (["--host", ""], "--host: it is empty"),
        (["--max-body", "much"], "memory size"),
    ],
)
def test_what_it_cannot_be_started_with_is_refused_before_a_model_is_opened(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("branchwise.serve.running.Reasoner", None)
    with pytest.raises(UsageError, match=said):
        app(options, standalone_mode=False)


def test_it_is_cheap_to_import(tmp_path: Path) -> None:
    code = "import sys, branchwise.serve.command; print(*{'torch', 'litestar', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
