"""What a confined program can write, and where."""

import subprocess

import pytest
from branchwise.verifiers.sandbox import (
    SCRATCH_BYTES,
    interpreter,
    open_sandbox,
    sandbox_fault,
    worker_prefix,
)

pytestmark = pytest.mark.skipif(sandbox_fault() is not None, reason=str(sandbox_fault()))

WRITING = """
import os, sys
kept, part = 0, b"x" * (1 << 20)
try:
    for i in range(int(sys.argv[2])):
        with open(os.path.join(sys.argv[1], str(i)), "wb") as file:
            file.write(part)
        kept += len(part)
except OSError as error:
    print(type(error).__name__, os.strerror(error.errno), kept)
else:
    print("all", kept)
"""


def written(command: list[str], folder: str, megabytes: int) -> list[str]:
    done = subprocess.run(
        [*command, "-I", "-S", "-c", WRITING, folder, str(megabytes)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip().rsplit(maxsplit=1)


COMMANDS = {
    "program": lambda: open_sandbox().command([interpreter()]),
    "worker": lambda: [*worker_prefix(), interpreter()],
}


@pytest.mark.parametrize(
    ("who", "folder"), [("program", "/tmp"), ("program", "/dev/shm"), ("worker", "/dev/shm")]
)
def test_files_in_memory_are_bounded_however_many_there_are(who: str, folder: str) -> None:
    assert written(COMMANDS[who](), folder, 8) == ["all", str(8 << 20)]
    reason, kept = written(COMMANDS[who](), folder, 2 * SCRATCH_BYTES >> 20)
    assert reason == "OSError No space left on device"
    assert int(kept) <= SCRATCH_BYTES


@pytest.mark.parametrize(
    ("who", "folder"),
    [("program", "/dev"), ("program", "/usr"), ("program", "/"), ("worker", "/dev"), ("worker", "/tmp")],
)
def test_nothing_is_written_elsewhere(who: str, folder: str) -> None:
    reason, kept = written(COMMANDS[who](), folder, 1)
    assert (reason, kept) == ("OSError Read-only file system", "0")
