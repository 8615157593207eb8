"""Dockerfiles and their ignore files as data."""

import fnmatch
import re
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: its word in capitals, and the rest on one line."""

    word: str
    rest: str


def instructions(dockerfile: Path) -> list[Instruction]:
    """In order, without comments; continued lines are joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [Instruction(part[0].upper(), part[1].strip()) for part in parts]


def of_word(found: list[Instruction], word: str) -> list[str]:
    """What stands behind each instruction of that word."""
    return [instruction.rest for instruction in found if instruction.word == word]


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether a `.dockerignore` of these patterns keeps `path`, or a folder above it, out of the context."""
    parts = path.split("/")
    prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    return any(_matches(prefix, pattern) for prefix in prefixes for pattern in patterns)


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
