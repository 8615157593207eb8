"""Where untrusted programs run: bubblewrap, where the system has it.

Inside there is no network, no other process, and of the files only the interpreter's, for reading.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..engine.errors import CapabilityError

_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
_SCRATCH = "/dev/shm"

SCRATCH_BYTES = 64 << 20
"""What a program may keep in files, in each of the two places that it can write to."""


class Sandbox(msgspec.Struct, frozen=True):
    """How a command is confined. Without `program` it is not: it runs as the user, with limits only."""

    program: str | None

    def command(self, arguments: Sequence[str], readable: Sequence[Path] = ()) -> list[str]:
        """The command that runs `arguments` confined, with `readable` folders to be read inside."""
        if self.program is None:
            return list(arguments)
        folders = [Path(folder) for folder in _SYSTEM_FOLDERS] + [Path(sys.base_prefix), *readable]
        return [
            self.program,
            *("--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
            *("--proc", "/proc", *_devices(self.program), *_scratch(self.program, "/tmp")),
            *(part for folder in folders if folder.exists() for part in _bound(folder)),
            *("--remount-ro", "/", "--chdir", "/tmp", "--setenv", "HOME", "/tmp", "--"),
            *arguments,
        ]


def _devices(program: str) -> tuple[str, ...]:
    """Nothing can be written among the devices but in shared memory."""
    return ("--dev", "/dev", *_scratch(program, "/dev/shm"), "--remount-ro", "/dev")


@functools.cache
def _scratch(program: str, folder: str) -> tuple[str, ...]:
    """Files in memory at `folder`: at most `SCRATCH_BYTES`, where bubblewrap can say so (0.7 and later)."""
    told = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=20, check=False)
    size = ("--size", str(SCRATCH_BYTES)) if "--size" in told.stdout + told.stderr else ()
    return (*size, "--tmpfs", folder)


def _bound(folder: Path) -> tuple[str, ...]:
    if folder.is_symlink():
        return ("--symlink", str(folder.readlink()), str(folder))
    return ("--ro-bind", str(folder), str(folder))


def open_sandbox(*, allow_none: bool = False) -> Sandbox:
    """The sandbox of this system; none where `allow_none` says that programs may run as the user.

    Raises `CapabilityError` where there is none and that was not said.
    """
    fault = sandbox_fault()
    if fault is None:
        return Sandbox(shutil.which("bwrap"))
    if allow_none:
        return Sandbox(None)
    raise CapabilityError(
        f"no sandbox: {fault}; install bubblewrap, or allow generated programs to run as you (unsafe)"
    )


@functools.cache
def sandbox_fault() -> str | None:
    """Why programs cannot be confined here, None where they can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    probe = Sandbox(program).command([interpreter(), "-I", "-S", "-c", ""])
    try:
        done = subprocess.run(probe, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run: {error}"
    if done.returncode == 0:
        return None
    reason = done.stderr.decode(errors="replace").strip().splitlines()
    return f"bubblewrap does not run: {reason[-1] if reason else f'status {done.returncode}'}"


def interpreter() -> str:
    """The Python that runs inside: the one below any virtual environment."""
    found = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return str(found) if os.access(found, os.X_OK) else sys.executable


def worker_prefix() -> list[str]:
    """What goes before the command of a worker that handles untrusted text: it reads the system's files and
    writes none but scratch ones in memory, without network; nothing where the system has no sandbox."""
    if sandbox_fault() is not None:
        return []
    program = shutil.which("bwrap") or "bwrap"
    confined = ("--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/")
    system = (*_devices(program), "--proc", "/proc")
    scratch = ("--setenv", "TMPDIR", _SCRATCH, "--setenv", "MPLCONFIGDIR", _SCRATCH)
    return [program, *confined, *system, *scratch, "--"]
