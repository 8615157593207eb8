"""Which reader a file or folder needs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...engine.errors import UsageError
from ..runs.store import FILE
from .game24 import read_chains
from .lm_eval import read_samples
from .qwen_math import read_outputs
from .recording import Recording
from .saved_run import read_run

_KNOWN = "a run's --out folder, lm-eval samples_*.jsonl, Qwen2.5-Math outputs, or Game-of-24 chains"


def open_recording(path: str | Path) -> Recording:
    """What was recorded in a file, or in a folder with a run or one such file.

    Raises `UsageError` in one line for what cannot be replayed.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        if (path / FILE).is_file():
            return read_run(path)
        path = _only_file(path)
    try:
        entries = list(_entries(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--replay {path}: cannot be read ({reason}); give {_KNOWN}") from error
    try:
        return _read(entries, path)
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        raise UsageError(f"--replay {path}: {error}; give {_KNOWN}") from error


def _read(entries: list[Any], path: Path) -> Recording:
    first = entries[0] if entries else None
    match first:
        case {"resps": _, "doc_id": _}:
            return read_samples(entries, path.stem)
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


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        yield from (json.loads(line) for line in text.splitlines() if line.strip())
        return
    whole = json.loads(text)
    if not isinstance(whole, list):
        raise ValueError("not a list of entries")
    yield from whole


def _only_file(folder: Path) -> Path:
    found = sorted(folder.glob("samples_*.jsonl")) or sorted(folder.glob("*.jsonl"))
    if len(found) != 1:
        raise UsageError(f"--replay {folder}: holds {len(found)} files of samples; name one of them")
    return found[0]
