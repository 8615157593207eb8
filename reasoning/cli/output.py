"""Files that a command will write, checked before it spends anything."""

from pathlib import Path

from ...engine.errors import UsageError
from ...engine.user_path import user_path

GRAPH_SUFFIXES = (".json", ".graphml", ".mmd")


def graph_path(text: str) -> Path:
    """The path of `--graph`: a known suffix, in a folder that exists, and writable."""
    path = user_path(text)
    if path.suffix not in GRAPH_SUFFIXES:
        raise UsageError(
            f"--graph {text}: the suffix names the format; end it in {', '.join(GRAPH_SUFFIXES)}"
        )
    try:
        if not path.parent.is_dir():
            raise UsageError(
                f"--graph {text}: folder {path.parent} does not exist; make it, or give another path"
            )
        _try_writing(path)
    except OSError as error:
        raise UsageError(
            f"--graph {text}: cannot write there ({error.strerror}); give another path"
        ) from error
    return path


def _try_writing(path: Path) -> None:
    # Permission bits do not tell (root, read-only file systems): only opening does.
    existed = path.exists()
    path.open("ab").close()
    if not existed:
        path.unlink()
