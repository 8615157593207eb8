"""What a command line printed and returned."""

from typing import NamedTuple, Protocol


class Ran(NamedTuple):
    """Exit status, stdout and stderr."""

    status: int
    out: str
    err: str


class Branchwise(Protocol):
    """`branchwise("solve", "...")` runs one command line."""

    def __call__(self, *arguments: str) -> Ran: ...


def refused(ran: Ran, *parts: str) -> None:
    """Exit status 2 and exactly one line of error that holds all `parts`."""
    assert ran.status == 2, ran
    assert ran.err.endswith("\n")
    assert len(ran.err.splitlines()) == 1, ran.err
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err
