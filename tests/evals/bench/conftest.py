"""A tiny model, and peers whose adapters are written by the test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny import save_model

FAKE = """
import os, sys, time

class Peer:
    def __init__(self, model, threads, dtype, positions, sequences, prefix_cache):
        print("a library talks on stdout")
        self.version = f"fake 1 ({dtype}, {threads}, {positions}, {sequences}, {prefix_cache})"
        ON_LOAD

    def run(self, requests, timed):
        ON_RUN
        clock = time.perf_counter
        return [
            {"tokens": [7] * request["new"], "times": [clock() for _ in range(request["new"])]}
            for request in requests
            for _ in range(request["samples"])
        ]
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with 256 positions of context."""
    path = tmp_path_factory.mktemp("model")
    save_model(path, "Llama")
    return path


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Path]:
    """Writes an adapter whose peer does `on_load` and `on_run` first."""

    def write(*, on_load: str = "pass", on_run: str = "pass") -> Path:
        path = tmp_path / "fake_adapter.py"
        path.write_text(FAKE.replace("ON_LOAD", on_load).replace("ON_RUN", on_run))
        return path

    return write
