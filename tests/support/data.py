"""Files outside of the repository: `BRANCHWISE_DATA` names their folder."""

import os
from pathlib import Path

import pytest


def data_path(name: str) -> Path:
    """A file or folder of the data; skips where the variable is unset, fails where it is set and the data is
    missing."""
    folder = os.environ.get("BRANCHWISE_DATA")
    if not folder:
        pytest.skip("BRANCHWISE_DATA is not set")
    path = Path(folder) / name
    assert path.exists(), f"BRANCHWISE_DATA is set and {path} is missing"
    return path
