"""Python programs of a model, in the sandbox of `verifiers.sandbox`."""

import subprocess

import anyio

from ...verifiers.sandbox import Sandbox, interpreter, open_sandbox
from .tool import MOST_CHARACTERS, Tool

_START = (
    "import resource, sys; "
    "resource.setrlimit(resource.RLIMIT_CPU, ({cpu_s}, {cpu_s})); "
    "resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory})); "
    "exec(compile(sys.stdin.read(), 'program', 'exec'), {{'__name__': '__main__'}})"
)


def python_tool(
    *, timeout_s: float = 10.0, memory_bytes: int = 1 << 30, sandbox: Sandbox | None = None
) -> Tool:
    """A tool that runs a program and returns what it printed, without network and files. An error's last
    line comes behind that.

    Raises `CapabilityError` where the system has no sandbox and none is given.
    """
    confined = sandbox or open_sandbox()
    start = _START.format(cpu_s=max(1, round(timeout_s)), memory=memory_bytes)
    command = confined.command([interpreter(), "-I", "-S", "-c", start])

    async def python(code: str) -> str:
        """Run a Python program and return what it prints."""
        return await _run(command, code)

    return Tool.of(python, timeout_s=timeout_s)


async def _run(command: list[str], code: str) -> str:
    """What the program printed. Cancelled, it is killed."""
    async with await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        kept = {"out": b"", "err": b""}

        async def read(name: str, stream: anyio.abc.ByteReceiveStream | None) -> None:
            assert stream is not None
            async for part in stream:  # what is beyond the limit is read and dropped, so that nobody waits
                kept[name] = (kept[name] + part)[: 4 * MOST_CHARACTERS]

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(read, "out", process.stdout)
                group.start_soon(read, "err", process.stderr)
                assert process.stdin is not None
                try:
                    await process.stdin.send(code.encode(errors="replace"))
                    await process.stdin.aclose()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass  # it ended before it had read all
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    printed = kept["out"].decode(errors="replace").rstrip("\n")
    if process.returncode == 0:
        return printed
    lines = kept["err"].decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"it ended with status {process.returncode}"
    return "\n".join(part for part in (printed, f"error: {reason}") if part)
