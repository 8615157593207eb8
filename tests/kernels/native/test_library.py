"""Building, caching and falling back."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from branchwise.kernels import dispatch
from branchwise.kernels.attention import HeadShape, PagedAttention
from branchwise.kernels.elementwise import TorchElementwise
from branchwise.kernels.fixed_attention import FixedAttention
from branchwise.kernels.native import build, library
from branchwise.kernels.native.attention import NativeAttention
from branchwise.kernels.native.elementwise import NativeElementwise
from structlog.testing import CapturingLogger

CPU = torch.device("cpu")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, and a process that has not tried yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv(library.SWITCH, raising=False)
    library._load.cache_clear()
    yield tmp_path
    library._load.cache_clear()


def _made(deterministic: bool) -> object:
    shape = HeadShape(9, 3, 64, 16, 4)
    limits = {"longest": 128, "max_rows": 16}
    return dispatch.make_attention(
        shape, 64, [None], torch.float32, CPU, deterministic=deterministic, **limits
    )


def _compiler(folder: Path, script: str) -> str:
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """What the library logs, however logging is set up."""
    logger = CapturingLogger()
    monkeypatch.setattr(library, "log", logger)
    return logger


def test_without_a_compiler_torch_computes(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, lines: CapturingLogger
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert isinstance(_made(False), PagedAttention)
    assert isinstance(_made(True), FixedAttention)
    (line,) = lines.calls
    assert line.method_name == "warning"
    assert line.kwargs == {"reason": "no C++ compiler (no-such-compiler)"}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'x.cpp:1: error: no such flag' >&2; exit 1", "failed: x.cpp:1: error: no such flag"),
        ("exit 1", "failed: exit status 1"),
        ("exit 0", "made nothing"),
    ],
)
def test_a_failed_build_falls_back_and_leaves_nothing(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str, lines: CapturingLogger
) -> None:
    monkeypatch.setenv("CXX", _compiler(fresh, script))
    assert isinstance(_made(False), PagedAttention)
    (line,) = lines.calls
    assert reason in line.kwargs["reason"]
    assert list((fresh / "branchwise" / "native").iterdir()) == []


def test_the_switch(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv(library.SWITCH, "1")
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler"):
        library.library()
    monkeypatch.setenv(library.SWITCH, "0")
    assert library.library() is None


def test_an_unwritable_cache_falls_back(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "file"))
    assert library.library() is None


def test_a_library_is_built_once_and_kept_under_its_digest(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fresh / "calls"
    script = f'echo >> {calls}; while [ "$1" != -o ]; do shift; done; echo built > "$2"'
    monkeypatch.setenv("CXX", _compiler(fresh, script))
    path = build.built_library()
    assert path.parent == fresh / "branchwise" / "native"
    assert build.built_library() == path
    assert calls.read_text() == "\n"
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    assert build.built_library() != path
    assert path.parent.stat().st_mode & 0o077 == 0


def test_both_modes_use_the_operators(native: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(_made(False), NativeAttention)
    assert isinstance(_made(True), NativeAttention)
    assert isinstance(dispatch.make_elementwise(9, 3, 64, torch.bfloat16, CPU), NativeElementwise)
    assert dispatch.make_drawing(CPU) is not None
    monkeypatch.setenv(library.SWITCH, "0")
    assert isinstance(_made(False), PagedAttention)
    assert isinstance(dispatch.make_elementwise(9, 3, 64, torch.bfloat16, CPU), TorchElementwise)
    assert dispatch.make_drawing(CPU) is None
