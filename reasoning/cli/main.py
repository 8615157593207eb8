"""The `branchwise` command. Light to import: a Ctrl-C while the rest loads ends as quietly as a later one."""

import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    _open_closed_streams()
    status = run(sys.argv[1:] if arguments is None else arguments)
    _drop_unwritable()
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line: 0 answered, 1 no answer, 2 wrong usage, 3 failed, 130 interrupted."""
    try:
        from .app import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _drop_unwritable() -> None:
    """What a full device or a closed pipe did not take is let go: Python would try again at its end, and exit
    with a status of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "w", encoding="utf-8") as null:
                os.dup2(null.fileno(), stream.fileno())


def _open_closed_streams() -> None:
    """A stream that the caller closed reads as empty and takes what is written, as the null device does."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
