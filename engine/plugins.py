"""What the installed packages register under a group of entry points."""

import functools
import sys
from importlib.metadata import EntryPoint, entry_points


def registered(group: str) -> dict[str, EntryPoint]:
    """By name, sorted; of two with one name the first that the path has."""
    return dict(_read(group, tuple(sys.path)))


@functools.lru_cache(maxsize=64)
def _read(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Once for each `path`: a reading parses the metadata of every package, which takes milliseconds."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, point)
    return dict(sorted(found.items()))
