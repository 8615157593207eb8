"""Paths as a person writes them."""

from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.engine.user_path import user_path


def test_a_home_is_found_and_other_paths_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/models/m.gguf") == tmp_path / "models" / "m.gguf"
    assert user_path("a/~b") == Path("a/~b")


def test_a_home_that_nobody_has_is_one_line():
    with pytest.raises(UsageError, match=r"^path '~nobody_of_that_name/m': no home of that name; write the"):
        user_path("~nobody_of_that_name/m")
