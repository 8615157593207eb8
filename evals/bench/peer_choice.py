"""Which peers run beside the engine: `--peer NAME=PYTHON`."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from .peer_models import PeerModels
from .peer_process import FOLDER, PeerProcess, open_peer

ADAPTERS = {
    "openvino": "openvino_adapter.py",
    "llama.cpp": "llama_cpp_adapter.py",
    "vllm": "vllm_adapter.py",
    "transformers": "transformers_adapter.py",
}


class PeerChoice(msgspec.Struct, frozen=True):
    """A peer and the interpreter that has its package."""

    name: str
    python: Path


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload needs of a peer's memory: `positions` of the longest sequence, how many `sequences` run
    side by side at most, and whether prompts share prefixes that a cache finds."""

    positions: int
    sequences: int
    prefix_cache: bool = True


def parse_peer(text: str) -> PeerChoice:
    """`NAME=PYTHON`; `transformers` alone means the interpreter at hand. `UsageError` in one line for a name
    that is not known, or an interpreter that is not there."""
    name, sign, given = text.partition("=")
    if name not in ADAPTERS:
        raise UsageError(f"--peer {text}: no such peer; known are {', '.join(ADAPTERS)}")
    if not sign:
        if name != "transformers":
            raise UsageError(f"--peer {name}: say which interpreter has it, as --peer {name}=VENV/bin/python")
        return PeerChoice(name, Path(sys.executable))
    python = Path(given).expanduser().absolute()
    if not given or shutil.which(python) is None:
        raise UsageError(
            f"--peer {text}: {given or 'nothing'} is no program that can run; give the python of the "
            "environment that has the peer"
        )
    return PeerChoice(name, python)


@asynccontextmanager
async def open_choice(
    choice: PeerChoice,
    models: PeerModels,
    *,
    dtype: str,
    threads: int,
    space: Space,
) -> AsyncIterator[PeerProcess]:
    """The peer with the model loaded, in the form that it reads, and stopped until it is asked."""
    match choice.name:
        case "openvino":
            model = await models.openvino(choice.python)
        case "llama.cpp":
            model = await models.gguf()
        case _:
            model = await models.transformers()
    load = {
        "model": str(model),
        "threads": threads,
        "dtype": dtype,
        **msgspec.to_builtins(space),
    }
    log = models.logs / f"{choice.name}{'' if space.prefix_cache else '-uncached'}.log"
    adapter = FOLDER / ADAPTERS[choice.name]
    async with open_peer(choice.name, choice.python, log, adapter=adapter, load=load) as peer:
        yield peer
