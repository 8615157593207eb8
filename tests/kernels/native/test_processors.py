"""The operators as built for processors other than this one: a row keeps its bits on each."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from branchwise.kernels.native.build import MARCH
from branchwise.kernels.native.library import SWITCH

TESTS = Path(__file__).parents[2]
LEVELS = {"x86-64": set[str](), "x86-64-v3": {"avx2", "fma"}}
"""What each level of the architecture needs of the processor that runs it."""


def _processor_flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_of_the_architecture_passes_the_same_tests(level: str, native: object) -> None:
    if platform.machine() != "x86_64" or not LEVELS[level] <= _processor_flags():
        pytest.skip(f"this processor does not run {level}")
    tests = ["kernels/native", "engine/loop/test_deterministic.py", "reasoning/test_speculate.py"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *(str(TESTS / test) for test in tests),
        ],
        env={**os.environ, MARCH: level, SWITCH: "1"},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
