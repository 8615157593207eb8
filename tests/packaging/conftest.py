"""The package as files: what the packaging tests read."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

FLOORS = {
    "kernels": 1,
    "engine": 2,
    "verifiers": 3,
    "strategies": 4,
    "reasoning": 5,
    "evals": 6,
    "serve": 7,
}


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which is the package."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def floors() -> dict[str, int]:
    """The folders of the package and their floors (the facade at the root stands above all)."""
    return FLOORS


@pytest.fixture(scope="session")
def sources(root: Path) -> list[Path]:
    """Every module of the package."""
    inside = (path for folder in FLOORS for path in sorted((root / folder).rglob("*.py")))
    return [*sorted(root.glob("*.py")), *inside]


@pytest.fixture(scope="session")
def pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())
