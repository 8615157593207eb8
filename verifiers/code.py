"""Running programs against tests, in a sandbox, so that only a program that meets them passes.

Program and tests run in two processes (`isolated`): the program answers calls with plain data, the tests
judge them. The verdict carries a nonce that the program never sees. A program cannot pass by ending early,
printing, redefining what tests use, or reading them.

Time is CPU time, which a busy machine does not use up; and what ran out of it beside others is run once more
alone before that counts.
"""

import contextlib
import math
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .isolated import codec
from .sandbox import Sandbox, interpreter, open_sandbox
from .turns import Turns

_ISOLATED = Path(codec.__file__).resolve().parent
_START = (
    "import sys; sys.path.append(sys.argv[1]); from isolated.{role} import main; "
    "main(*map(int, sys.argv[2:]))"
)
CPU_FACTOR = 4
"""How much more CPU time a program may use than one that is known to be right."""
_REFERENCE_CPU_S = 300
_LOOK_S = 0.05
"""Seconds between two looks at whether a verdict is still wanted."""

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
    """`passed` is None where there is no verdict (out of time without having used its CPU seconds).
    `timed_out`: it ran out of CPU or wall-clock time. `cpu_s` is what a measured program says that it
    used."""

    passed: bool | None
    detail: str = ""
    timed_out: bool = False
    cpu_s: float | None = None


_UNWANTED = CodeResult(None, "nobody waits for the verdict")


class _Verdict(msgspec.Struct):
    nonce: str
    passed: bool
    detail: str
    cpu_s: float | None = None


_turns = Turns()


def run_tests(
    program: str,
    tests: CodeTests,
    *,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    reference: str | None = None,
    unwanted: threading.Event | None = None,
) -> CodeResult:
    """Whether the program meets its tests. Blocks, up to a few times `limits.wall_s`; call it off the event
    loop.

    `reference` is a program known to be right: where `program` runs out of CPU time, it may use `CPU_FACTOR`
    times as much as that one does on this machine, if that is more. `unwanted` is set where nobody waits for
    the verdict any more: what runs is killed, and there is none. Raises `CapabilityError` where `sandbox` is
    None and the system has none.
    """
    limits = limits or Limits()
    sandbox = sandbox or open_sandbox()
    unwanted = unwanted or threading.Event()
    with _turns.beside_others() as turn:
        result = _run_once(program, tests, limits, sandbox, unwanted)
    if result.timed_out and turn.had_company:
        with _turns.alone():
            result = _run_once(program, tests, limits, sandbox, unwanted)
    if result.timed_out and result.passed is False and reference is not None:
        known = cpu_seconds(reference, tests, sandbox=sandbox, unwanted=unwanted)
        wider = relative_limits(known, limits)
        if wider.cpu_s > limits.cpu_s:
            with _turns.alone():
                result = _run_once(program, tests, wider, sandbox, unwanted)
    return result


def cpu_seconds(
    program: str, tests: CodeTests, *, sandbox: Sandbox | None = None, unwanted: threading.Event | None = None
) -> float | None:
    """The CPU time that a trusted program takes for its tests on this machine, alone; None where it does not
    pass them. Blocks, ends early and raises as `run_tests` does."""
    limits = Limits(cpu_s=_REFERENCE_CPU_S, wall_s=2.0 * _REFERENCE_CPU_S)
    sandbox = sandbox or open_sandbox()
    with _turns.alone():
        result = _run_once(program, tests, limits, sandbox, unwanted or threading.Event(), measured=True)
    return result.cpu_s if result.passed else None


def relative_limits(reference_cpu_s: float | None, least: Limits) -> Limits:
    """Limits by what a right program takes, never below `least`; these, where that is not known."""
    if reference_cpu_s is None:
        return least
    cpu_s = max(least.cpu_s, math.ceil(CPU_FACTOR * reference_cpu_s))
    return msgspec.structs.replace(least, cpu_s=cpu_s, wall_s=max(least.wall_s, 4.0 * cpu_s))


def _run_once(
    program: str,
    tests: CodeTests,
    limits: Limits,
    sandbox: Sandbox,
    unwanted: threading.Event,
    *,
    measured: bool = False,
) -> CodeResult:
    if unwanted.is_set():
        return _UNWANTED
    nonce = secrets.token_hex(16)
    order = msgspec.json.encode(
        {
            "nonce": nonce,
            "tests": tests.tests,
            "names": tests.names,
            "trusted": tests.trusted,
            "measured": measured,
        }
    )
    deadline_s = time.monotonic() + limits.wall_s
    ours, theirs = socket.socketpair()
    with ours, theirs, contextlib.ExitStack() as running:
        candidate = running.enter_context(_started("candidate", theirs, limits, sandbox))
        referee = running.enter_context(_started("referee", ours, limits, sandbox))
        ours.close()
        theirs.close()
        _feed(candidate, program.encode(errors="replace"))
        output = _output(referee, order, deadline_s, unwanted)
        if output is not None:
            return _result(output, nonce, candidate, limits)
    if unwanted.is_set():
        return _UNWANTED
    return CodeResult(None, f"no verdict within {limits.wall_s:g} s", timed_out=True)


def _output(
    referee: subprocess.Popen[bytes], order: bytes, deadline_s: float, unwanted: threading.Event
) -> bytes | None:
    """All that the referee says; None at the deadline (monotonic clock), or where it is not wanted."""
    given: bytes | None = order
    while not unwanted.is_set():
        left_s = max(0.0, deadline_s - time.monotonic())
        try:
            return referee.communicate(given, timeout=min(left_s, _LOOK_S))[0]
        except subprocess.TimeoutExpired:
            given = None  # it is on its way
        if not left_s:
            return None
    return None


def _result(output: bytes, nonce: str, candidate: subprocess.Popen[bytes], limits: Limits) -> CodeResult:
    try:
        verdict = msgspec.json.decode(output, type=_Verdict)
    except msgspec.DecodeError:
        return CodeResult(None, "the tests ended without a verdict")
    if not secrets.compare_digest(verdict.nonce, nonce):
        return CodeResult(None, "a verdict that is not of these tests")
    if not verdict.passed and _ended_by_cpu(candidate):
        return CodeResult(False, f"over its {limits.cpu_s} s of CPU time", timed_out=True)
    return CodeResult(verdict.passed, verdict.detail, cpu_s=verdict.cpu_s)


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
