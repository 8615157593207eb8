"""The Triton kernels in Triton's interpreter: the files `interpreted_*.py` in processes of their own, for a
kernel is made for the interpreter or for a GPU when its module is imported."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("interpreted_*.py"))
WITH_SLOW = [name for name in FILES if "pytest.mark.slow" in (HERE / name).read_text()]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def run_interpreted(files: list[str], marker: str, timeout_s: float) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    env.pop("PYTEST_ADDOPTS", None)
    found = subprocess.run(
        [*command, "-m", marker, *(str(HERE / file) for file in files)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]


def test_kernels_in_the_interpreter():
    """All in one process: each would load torch and Triton anew."""
    run_interpreted(FILES, "not slow", 240)


@pytest.mark.slow
@pytest.mark.parametrize("file", WITH_SLOW)
def test_kernels_in_the_interpreter_at_length(file: str):
    run_interpreted([file], "slow", 900)
