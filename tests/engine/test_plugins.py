"""Entry points are read once for each path, and follow the path when it changes."""

import importlib.metadata
from pathlib import Path

import pytest
from branchwise.engine import plugins
from branchwise.engine.plugins import registered


def _install(folder: Path, package: str, points: str) -> str:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[made.up]\n{points}\n")
    return str(folder)


def test_packages_are_found_on_the_path_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registered("made.up") == {}
    monkeypatch.syspath_prepend(_install(tmp_path / "one", "one", "z = json:loads\na = json:dumps"))
    assert list(registered("made.up")) == ["a", "z"]
    monkeypatch.syspath_prepend(_install(tmp_path / "two", "two", "a = json:load"))
    assert registered("made.up")["a"].value == "json:load", "the first on the path has the name"
    monkeypatch.undo()
    assert registered("made.up") == {}


def test_a_second_look_reads_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    first = registered("branchwise.strategies")

    def read(**_: object) -> importlib.metadata.EntryPoints:
        raise AssertionError("read again")

    monkeypatch.setattr(plugins, "entry_points", read)
    assert registered("branchwise.strategies") == first
    first.clear()
    assert registered("branchwise.strategies"), "a caller's changes are its own"
