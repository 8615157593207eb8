"""Paths as a person writes them."""

import os
from pathlib import Path

from .errors import UsageError


def user_path(path: str | os.PathLike[str]) -> Path:
    """`path` with a leading `~` or `~user` replaced by that home. Raises `UsageError` where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UsageError(
            f"path {os.fspath(path)!r}: no home of that name; write the path in full, or ./~... for a name "
            "that begins so"
        ) from error
