"""What a mistyped name probably meant, as the end of an error line."""

from collections.abc import Iterable

from ...verifiers.nearest import nearest


def hint(name: str, known: Iterable[str]) -> str:
    """The close matches of `name`, else all that is known."""
    names = sorted(known)
    close = nearest(name, names)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
