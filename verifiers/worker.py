"""A worker process that can be killed: for work that may hang, eat memory or crash.

The worker imports one function and answers requests with it, one after another. A request that takes too
long kills the process; the next one starts a fresh one. Any thread may call, no signal is used.
"""

import contextlib
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from typing import IO, Any

import msgspec

from ..engine.errors import BranchwiseError

_HEADER = struct.Struct(">I")
_STARTUP_S = 60.0
_MEMORY_BYTES = 4 << 30
_GRACE_S = 2.0

CPU_KILLS = (-signal.SIGXCPU, 128 + signal.SIGXCPU)
"""How a process ends that used up its CPU time, on its own and inside a sandbox."""


class WorkerTimeout(BranchwiseError):
    """The worker did not answer in time and was killed."""


class WorkerFailed(BranchwiseError):
    """The worker raised (`kind` is the exception's name) or died (`kind` is "died")."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Worker:
    """Calls `target` ("package.module:function") in a process of its own.

    Arguments and results are what msgpack can hold. `prefix` is put before the command (a sandbox). One call
    runs at a time; others wait for their turn, and their time limit starts with it.
    """

    def __init__(self, target: str, *, memory_bytes: int = _MEMORY_BYTES, prefix: Sequence[str] = ()) -> None:
        self.target = target
        self._command = [*prefix, sys.executable, "-m", f"{__package__}.worker_main", target]
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def call(self, *arguments: Any, timeout_s: float, cpu_s: int | None = None) -> Any:
        """The function's result, within `timeout_s` of wall-clock time and `cpu_s` whole seconds of CPU time
        (which a busy machine does not use up; None: no less than `timeout_s`).

        Raises `WorkerTimeout`, or `WorkerFailed` where it raised or the process died.
        """
        allowed_s = int(timeout_s) + 5 if cpu_s is None else cpu_s
        with self._lock:
            process = self._running()
            try:
                _write(process.stdin, msgspec.msgpack.encode((allowed_s, arguments)))
                reply = _read(process.stdout, time.monotonic() + timeout_s)
            except TimeoutError:
                self._kill()
                raise WorkerTimeout(f"{self.target}: no answer within {timeout_s:g} s") from None
            except (OSError, EOFError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
                self._kill()
                if process.returncode in CPU_KILLS:
                    raise WorkerTimeout(f"{self.target}: over {allowed_s} s of CPU time") from None
                raise WorkerFailed(f"{self.target}: the worker process died", "died") from None
        kind, value = msgspec.msgpack.decode(reply)
        if kind is not None:
            raise WorkerFailed(f"{self.target}: {kind}: {value}", kind)
        return value

    def close(self) -> None:
        """End the process; a later call starts a new one."""
        with self._lock:
            self._kill()

    @property
    def pid(self) -> int | None:
        """The process id, None while none runs."""
        return None if self._process is None else self._process.pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._kill()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "BRANCHWISE_WORKER_MEMORY": str(self._memory_bytes)},
            start_new_session=True,
        )
        weakref.finalize(self, _end, process)
        self._process = process
        self.starts += 1
        try:
            failure = msgspec.msgpack.decode(_read(process.stdout, time.monotonic() + _STARTUP_S))
        except (TimeoutError, OSError, EOFError):
            failure = "the worker process did not start"
        if failure is not None:
            self._kill()
            raise WorkerFailed(f"{self.target}: {failure}", "import")
        return process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process, and with it those of a sandbox around it: all are of its group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _write(stream: IO[bytes] | None, payload: bytes) -> None:
    assert stream is not None
    stream.write(_HEADER.pack(len(payload)) + payload)
    stream.flush()


def _read(stream: IO[bytes] | None, deadline_s: float) -> bytes:
    """One frame. Raises `TimeoutError` at the deadline (monotonic clock), `EOFError` where the writer
    ended."""
    assert stream is not None
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)

        def exactly(size: int) -> bytes:
            parts = bytearray()
            while len(parts) < size:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    raise TimeoutError
                part = os.read(stream.fileno(), size - len(parts))
                if not part:
                    raise EOFError
                parts += part
            return bytes(parts)

        return exactly(_HEADER.unpack(exactly(_HEADER.size))[0])
