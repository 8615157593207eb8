"""`branchwise models`: the families that have a name, and what else `--model` takes."""

from pathlib import Path
from typing import Any

import typer

from ...engine.errors import BranchwiseError
from ...engine.remote.address import SHAPE
from ..source import ModelSource, find_source, named_sources
from .options import JsonOut, Verbose
from .render import encode

_ROLES = ("policy", "draft", "prm")


def models(json: JsonOut = False, verbose: Verbose = 0) -> None:
    """List the models that can be named without a path."""
    families = [_family(name) for name in named_sources()]
    if json:
        typer.echo(encode(families))
        return
    for family in families:
        typer.echo(f"{family['name']}: {family['error'] or family['solves']}")
        for role in _ROLES:
            if (part := family.get(role)) is not None:
                typer.echo(f"  {role}: {part['path']} ({part['bytes'] / 2**20:.1f} MiB)")
    typer.echo("also: a folder with safetensors and a tokenizer, a .gguf file, or a Hub id (owner/name)")
    typer.echo(f"and a model on a server: {SHAPE}")


def _family(name: str) -> dict[str, Any]:
    try:
        source = find_source(name)
    except (BranchwiseError, ImportError) as error:
        return {"name": name, "solves": "", "error": f"not usable ({error})"}
    return {"name": name, "solves": source.solves, "error": None, **_parts(source)}


def _parts(source: ModelSource) -> dict[str, Any]:
    paths = {role: getattr(source, role) for role in _ROLES}
    return {
        role: {"path": str(path), "bytes": _size(path)} for role, path in paths.items() if path is not None
    }


def _size(path: Path) -> int:
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
