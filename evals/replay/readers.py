"""Which reader a file or folder needs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ..runs.store import FILE
from .game24 import read_chains
from .lm_eval import read_samples
from .qwen_math import read_outputs
from .recording import Recording
from .saved_run import read_run

_KNOWN = "a run's --out folder, lm-eval samples_*.jsonl, Qwen2.5-Math outputs, or Game-of-24 chains"


def open_recording(path: str | Path, filter: str | None = None) -> Recording:
    """What was recorded in a file, or in a folder with a run or one such file. `filter` is the one whose
    answers are read from lm-eval samples; they may have several.

    Raises `UsageError` in one line for what cannot be replayed.
    """
    path = user_path(path)
    if path.is_dir():
        if (path / FILE).is_file():
            _refuse_filter(filter, path)
            return read_run(path)
        path = _only_file(path)
    try:
        entries = list(_entries(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--replay {path}: cannot be read ({reason}); give {_KNOWN}") from error
    try:
        return _checked(_read(entries, path, filter), path)
    except UsageError:
        raise
    except KeyError as error:
        raise UsageError(f"--replay {path}: an entry has no field {error}; give {_KNOWN}") from error
    except (TypeError, AttributeError, IndexError, OverflowError, ValueError) as error:
        raise UsageError(f"--replay {path}: an entry is malformed ({error}); give {_KNOWN}") from error


def _read(entries: list[Any], path: Path, filter: str | None) -> Recording:
    first = entries[0] if entries else None
    match first:
        case {"resps": _, "doc_id": _}:
            return read_samples(entries, path.stem, filter)
    _refuse_filter(filter, path)
    match first:
        case {"steps": _, "ys": _}:
            raise UsageError(
                f"--replay {path}: holds trees, whose parts are no samples; give the log of chains"
            )
        case {"ys": _, "infos": _}:
            return read_chains(entries, path.stem)
        case {"pred": _, "code": _, "score": _}:
            return read_outputs(entries, path.stem)
        case _:
            raise UsageError(f"--replay {path}: no known format; give {_KNOWN}")


def _checked(recording: Recording, path: Path) -> Recording:
    """The recording, where it can be served. Raises `UsageError`."""
    seen: set[str] = set()
    for problem in recording.problems:
        if problem.id in seen:
            raise UsageError(f"--replay {path}: two entries are of problem {problem.id!r}; keep one of them")
        seen.add(problem.id)
        if not problem.completions:
            raise UsageError(f"--replay {path}: problem {problem.id!r} has no completion; leave it out")
        for completion in problem.completions:
            if completion.tokens is not None and completion.tokens < 0:
                raise UsageError(
                    f"--replay {path}: a completion of {problem.id!r} has {completion.tokens} tokens; "
                    "give 0 or more, or none at all"
                )
            if completion.score is not None and not 0 <= completion.score <= 1:
                raise UsageError(
                    f"--replay {path}: a completion of {problem.id!r} has the reward "
                    f"{completion.score}; give finite numbers"
                )
    return recording


def _refuse_filter(filter: str | None, path: Path) -> None:
    if filter is not None:
        raise UsageError(
            f"--filter {filter}: {path} holds no lm-eval samples, which alone have one; leave it out"
        )


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".jsonl":
        # Not by splitlines: a JSON text may hold U+2028 and its like, which end no line of a JSONL file.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield _entry(number, line)
        return
    whole = json.loads(text)
    if not isinstance(whole, list):
        raise ValueError("not a list of entries")
    yield from whole


def _entry(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def _only_file(folder: Path) -> Path:
    found = sorted(folder.glob("samples_*.jsonl")) or sorted(folder.glob("*.jsonl"))
    if len(found) != 1:
        raise UsageError(f"--replay {folder}: holds {len(found)} files of samples; name one of them")
    return found[0]
