"""The code of docs/server.md runs as it stands, against a server."""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("openai", reason="needs the openai client")

from branchwise.serve.keys import KeyFile

if TYPE_CHECKING:
    from support.serving import ServerThread

PAGE = Path(__file__).resolve().parents[2] / "docs" / "server.md"
BLOCK = re.compile(r"^```(py|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE.read_text()) if found == kind]


def test_the_clients_code_runs(server: "ServerThread") -> None:
    names: dict[str, object] = {}
    for block in blocks("py"):
        exec(compile(block.replace("http://localhost:8000", server.url), str(PAGE), "exec"), names)


def test_the_key_file_is_one() -> None:
    (block,) = blocks("toml")
    assert set(msgspec.convert(tomllib.loads(block), KeyFile).keys) == {"alice", "bob"}
