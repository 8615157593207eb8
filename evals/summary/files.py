"""Files that people and programs read while they may be written again."""

import contextlib
import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Put `text` in the place of what `path` held: a reader, or a process that is killed here, finds the old
    text or the new one, never a part. Raises `OSError`, and then leaves the old one."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
