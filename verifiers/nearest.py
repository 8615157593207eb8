"""What a mistyped name probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_MAX = 40
_LISTED_MAX = 16
"""Names that an error lists behind the nearest ones: a longer list would hide these."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that `name` probably meant, the closest first; case, - and _ do not count."""
    folded = {_folded(candidate): candidate for candidate in known}
    return [folded[match] for match in get_close_matches(_folded(name[:_SHOWN_MAX]), folded, n=3, cutoff=0.6)]


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The error line for a name that is not known: the nearest ones, then all where these are few or none is
    near."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"did you mean {' or '.join(close)}?" if close else ""
    listing = "" if close and len(names) > _LISTED_MAX else f"there are: {', '.join(names)}"
    return f"{kind} {shown(name)}: not known; {' '.join(filter(None, (hint, listing)))}"


def shown(value: object) -> str:
    """A value in an error line: quoted, and cut to a readable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."


def _folded(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
