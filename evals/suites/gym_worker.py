"""reasoning-gym inside a worker process: drawing its problems, and scoring answers with nothing else in
reach.

Its scorers evaluate what a model wrote (sympy's parser calls `eval`), so while one runs, opening files to
write, starting processes, sockets and foreign code are refused; a sandbox around the process, where the
system has one, is the outer wall.
"""

import functools
import os
import sys
from typing import Any

SIZE = 1000
"""Problems per task and seed; a part of each problem's identity, since some generators depend on it."""

_REFUSED = (
    "ctypes.",
    "ftplib.",
    "http.",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "pty.",
    "shutil.",
    "signal.",
    "smtplib.",
    "socket.",
    "subprocess.",
    "urllib.",
    "webbrowser.",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_scoring = False


def answer(request: str, *arguments: Any) -> Any:
    """`tasks`, `draw` or `score`: one function, so that one worker does all."""
    return {"tasks": tasks, "draw": draw, "score": score}[request](*arguments)


def tasks() -> list[str]:
    """The names of all tasks."""
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - {"composite"})


def draw(task: str, seed: int, count: int) -> list[tuple[str, str]]:
    """The first `count` problems of a task with their answers (empty where the task has none)."""
    dataset = _dataset(task, seed)
    entries = (dataset[place] for place in range(count))
    return [(entry["question"], "" if entry["answer"] is None else str(entry["answer"])) for entry in entries]


def score(task: str, seed: int, place: int, text: str) -> float:
    """reasoning-gym's own score of an answer to one problem."""
    global _scoring
    dataset = _dataset(task, seed)
    entry = dataset[place]
    _guard()
    _scoring = True
    try:
        return float(dataset.score_answer(text, entry))
    finally:
        _scoring = False


@functools.lru_cache(maxsize=8)
def _dataset(task: str, seed: int) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(task, size=SIZE, seed=seed)


@functools.cache
def _guard() -> None:
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _scoring:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
    if writes or event.startswith(_REFUSED):
        raise PermissionError(f"an answer under scoring may not reach {event}")
