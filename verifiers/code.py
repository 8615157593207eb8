"""Running programs against tests, in a sandbox, so that only a program that meets them passes.

Program and tests run in two processes (`isolated`): the program answers calls with plain data, the tests
judge them. The verdict carries a nonce that the program never sees. A program cannot pass by ending early,
printing, redefining what tests use, or reading them.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .isolated import codec
from .sandbox import Sandbox, interpreter, open_sandbox

_ISOLATED = Path(codec.__file__).resolve().parent
_START = (
    "import sys; sys.path.append(sys.argv[1]); from isolated.{role} import main; "
    "main(*map(int, sys.argv[2:]))"
)
_CPU_KILLS = (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGKILL)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a program may use: CPU seconds, wall-clock seconds with all its tests, bytes of memory."""

    cpu_s: int = 10
    wall_s: float = 40.0
    memory_bytes: int = 1 << 30


class CodeTests(msgspec.Struct, frozen=True, kw_only=True):
    """Tests of a program.

    `tests` are run in order and raise where the program is wrong. `names` are those of the program that they
    may use; all others mean what they mean in Python or in `trusted`, which is run before them.
    """

    tests: tuple[str, ...]
    names: tuple[str, ...]
    trusted: str = ""


class CodeResult(msgspec.Struct, frozen=True):
    """`passed` is None where there is no verdict (out of time without having used its CPU seconds)."""

    passed: bool | None
    detail: str = ""


class _Verdict(msgspec.Struct):
    nonce: str
    passed: bool
    detail: str


def run_tests(
    program: str, tests: CodeTests, *, limits: Limits | None = None, sandbox: Sandbox | None = None
) -> CodeResult:
    """Whether the program meets its tests. Blocks up to `limits.wall_s`; call it off the event loop.

    Raises `CapabilityError` where `sandbox` is None and the system has none.
    """
    limits = limits or Limits()
    sandbox = sandbox or open_sandbox()
    nonce = secrets.token_hex(16)
    order = msgspec.json.encode(
        {"nonce": nonce, "tests": tests.tests, "names": tests.names, "trusted": tests.trusted}
    )
    deadline_s = time.monotonic() + limits.wall_s
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.ExitStack() as running:
        candidate = running.enter_context(_started("candidate", theirs, limits, sandbox))
        referee = running.enter_context(_started("referee", ours, limits, sandbox))
        ours.close()
        theirs.close()
        _feed(candidate, program.encode(errors="replace"))
        try:
            output, _ = referee.communicate(order, timeout=max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return CodeResult(None, f"no verdict within {limits.wall_s:g} s")
        return _result(output, nonce, candidate, limits)


def _result(output: bytes, nonce: str, candidate: subprocess.Popen[bytes], limits: Limits) -> CodeResult:
    try:
        verdict = msgspec.json.decode(output, type=_Verdict)
    except msgspec.DecodeError:
        return CodeResult(None, "the tests ended without a verdict")
    if not secrets.compare_digest(verdict.nonce, nonce):
        return CodeResult(None, "a verdict that is not of these tests")
    if not verdict.passed and _ended_by_cpu(candidate):
        return CodeResult(False, f"over its {limits.cpu_s} s of CPU time")
    return CodeResult(verdict.passed, verdict.detail)


def _ended_by_cpu(candidate: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return candidate.wait(timeout=0.2) in _CPU_KILLS
    return False


@contextlib.contextmanager
def _started(
    role: str, link: socket.socket, limits: Limits, sandbox: Sandbox
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the isolated side; killed, with all it started, at the end of the block."""
    arguments = [
        *(interpreter(), "-I", "-S", "-B", "-c", _START.format(role=role), str(_ISOLATED.parent)),
        *(str(link.fileno()), str(limits.cpu_s), str(limits.memory_bytes)),
    ]
    process = subprocess.Popen(
        sandbox.command(arguments, readable=(_ISOLATED,)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if role == "referee" else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(link.fileno(),),
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill() if sandbox.program else _kill_group(process)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def _feed(process: subprocess.Popen[bytes], program: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(program)
        process.stdin.close()
