"""The GPU check as a script: `python evals/bench/gpu_check.py` from a checkout, installed or not.

It needs torch, Triton, transformers, safetensors, networkx, anyio and numpy, and msgspec and structlog, which
`make gpu-wheels` fetches for a machine that lacks them. Status 0: all results are right, or there is no GPU;
1: one is wrong; 2: something that it needs is missing.
"""

import argparse
import importlib
import importlib.util
import platform
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WHEELS = ROOT / "build" / "gpu-wheels"
NEEDED = (
    "triton",
    "transformers",
    "safetensors",
    "tokenizers",
    "networkx",
    "anyio",
    "numpy",
    "msgspec",
    "structlog",
)
SECONDS = 465.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="gpu_check", description="Check and time the kernels on a GPU.")
    parser.add_argument("--only", action="append", default=[], help="sections whose name holds this")
    parser.add_argument("--out", type=Path, help="folder of the JSON; default evals/bench/results/gpu")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the whole run's time")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    # Modules of this folder have names that others may use at the top level.
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    if importlib.util.find_spec("torch") is None:
        return _refused("torch is not installed")
    import torch

    if not torch.cuda.is_available():
        print("gpu check: skipped, torch finds no GPU here")
        return 0
    with tempfile.TemporaryDirectory(prefix="branchwise-gpu-check-") as folder:
        lacking = provide(Path(folder), NEEDED)
        if lacking:
            return _refused(
                f"not installed: {', '.join(lacking)}; `make gpu-wheels` fetches msgspec, structlog"
            )
        check = importlib.import_module("branchwise.evals.bench.gpu.run")
        if options.share:
            return check.run_part(options.share)
        return check.run_check(options.only, options.out, options.seconds, Path(__file__).resolve())


def provide(folder: Path, needed: Iterable[str]) -> list[str]:
    """Put the checkout, as the package `branchwise`, and what is missing of `needed` and lies in fetched
    wheels on the path, by way of the empty `folder`. Returns what is missing still."""
    (folder / "branchwise").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, str(folder))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    for name in missing:
        for wheel in sorted(WHEELS.glob(f"{name}-*.whl")):
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(folder / "wheels")
    if missing:
        sys.path.insert(1, str(folder / "wheels"))
        importlib.invalidate_caches()
    return [name for name in missing if not _imports(name)]


def _imports(name: str) -> bool:
    """Whether it can be imported: a wheel of another Python cannot."""
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def _refused(reason: str) -> int:
    print(f"gpu check: {reason} (Python {platform.python_version()})", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
