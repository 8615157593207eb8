"""Where models come from: a shipped family by name, a folder, a GGUF file, or a Hub id."""

from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from ..engine.errors import ModelLoadError
from ..verifiers.nearest import shown


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A model to open, and the companions that come with it.

    `draft`, `prm` are used where the caller names none. `reproducible` and `deterministic` are the defaults
    of this source (design sections 2 and 4). `tasks_only`: the model reads nothing but its tasks' prompts;
    other text is refused with `solves`, one line that says what it can do.
    """

    name: str
    policy: Path
    draft: Path | None = None
    prm: Path | None = None
    reproducible: bool = False
    deterministic: bool = False
    tasks_only: bool = False
    solves: str = ""


def named_sources() -> tuple[str, ...]:
    """Names of the shipped families."""
    return tuple(sorted(point.name for point in entry_points(group="branchwise.models")))


def find_source(name: str) -> ModelSource:
    """Resolve what `--model` names.

    Raises `ModelLoadError` where nothing of that name is at hand.
    """
    for point in entry_points(group="branchwise.models", name=name):
        return point.load()()
    path = Path(name).expanduser()
    if name and _exists(path):
        return ModelSource(name=path.name or str(path), policy=path)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith(".gguf"):
        return ModelSource(name=name, policy=_download(name))
    known = ", ".join(named_sources())
    raise ModelLoadError(
        f"model {shown(name)}: no such folder or file; give a folder with safetensors and a tokenizer, "
        f"a .gguf file, a Hub id (owner/name), or one of: {known}"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _download(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.safetensors", "*.json", "*.model", "*.jinja", "*.txt"]
    try:
        return Path(snapshot_download(repo_id, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelLoadError(
            f"model {repo_id!r}: not in the local cache and the Hub did not give it ({reason}); "
            "check the id and the network, or give a local folder"
        ) from error
