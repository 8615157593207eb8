"""Many problems through one engine: lines in, JSON lines out, in the order of the input."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import anyio
import msgspec

from ...engine.errors import BranchwiseError, UsageError
from ...engine.user_path import user_path


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the input. `id` is the caller's, if given; `error` says why a line holds no problem."""

    number: int
    id: str | None = None
    text: str = ""
    error: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a line: the object to print, and the exit status it would have had alone."""

    result: dict[str, Any]
    status: int


def read_lines(name: str) -> list[Line]:
    """The problems in a file, `-` for stdin: lines of text, or JSON objects with "problem" and maybe "id"."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else user_path(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--input {name}: cannot be read ({reason}); give a file, or - for stdin") from error
    lines = list(_parse(data))
    if not lines:
        raise UsageError(
            f'--input {name}: holds no problem; give one a line, as text or as {{"problem": ...}}'
        )
    return lines


async def solve_lines(
    lines: Sequence[Line],
    solve: Callable[[Line], Awaitable[Outcome]],
    write: Callable[[dict[str, Any]], None],
    *,
    jobs: int,
) -> int:
    """Solve at most `jobs` lines at a time, write each once those before it are, return the worst status."""
    outcomes: list[Outcome | None] = [None] * len(lines)
    limiter = anyio.CapacityLimiter(jobs)
    written = 0
    failure: OSError | None = None

    async def one(index: int, line: Line) -> None:
        nonlocal written, failure
        async with limiter:
            outcomes[index] = await _outcome(line, solve)
        try:
            while failure is None and written < len(outcomes) and (ready := outcomes[written]) is not None:
                write({"line": lines[written].number, "id": lines[written].id, **ready.result})
                written += 1
        except OSError as error:  # nobody reads on; raised below: a task group would wrap it
            failure = error
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, line in enumerate(lines):
            group.start_soon(one, index, line)
    if failure is not None:
        raise failure
    return max(outcome.status for outcome in outcomes if outcome is not None)


async def _outcome(line: Line, solve: Callable[[Line], Awaitable[Outcome]]) -> Outcome:
    if line.error is not None:
        return failure(line.error, UsageError.exit_status)
    try:
        return await solve(line)
    except BranchwiseError as error:
        return failure(str(error), error.exit_status)
    except Exception as error:
        return failure(f"{type(error).__name__}: {error}", BranchwiseError.exit_status)


def failure(message: str, status: int) -> Outcome:
    """A line without a solution."""
    return Outcome(result={"answer": None, "error": message, "status": status}, status=status)


def _parse(data: bytes) -> Iterator[Line]:
    for number, raw in enumerate(data.splitlines(), start=1):
        if not raw.strip():
            continue
        try:
            yield _line(number, raw.decode("utf-8-sig").strip())
        except UnicodeDecodeError:
            yield _bad_line(number, "not UTF-8 text")


def _line(number: int, text: str) -> Line:
    if not text.startswith("{"):
        return Line(number=number, text=text)
    try:
        entry = msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, RecursionError) as error:
        return _bad_line(number, f"not a JSON object ({error})")
    problem, name = entry.get("problem"), entry.get("id")
    label = None if name is None else str(name)
    if not isinstance(problem, str) or not problem.strip():
        return _bad_line(number, '"problem" must be a text that is not empty', label)
    return Line(number=number, id=label, text=problem)


def _bad_line(number: int, what: str, name: str | None = None) -> Line:
    return Line(number=number, id=name, error=f"line {number}: {what}")
