"""Where models come from: a shipped family by name, a folder, a GGUF file, or a Hub id."""

from pathlib import Path

import msgspec

from ..engine.errors import ModelLoadError
from ..engine.plugins import registered
from ..engine.remote.address import SHAPE, RemoteAddress, is_remote, parse_address
from ..engine.user_path import user_path
from ..verifiers.nearest import shown

GROUP = "branchwise.models"


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """A model to open, and the companions that come with it.

    `draft`, `prm` are used where the caller names none. `reproducible` and `deterministic` are the defaults
    of this source (design sections 2 and 4). `tasks_only`: the model reads nothing but its tasks' prompts;
    other text is refused with `solves`, one line that says what it can do. `remote` is where the policy is
    where it is not here; `policy` is then the folder of its tokenizer, if one is named.
    """

    name: str
    policy: Path
    draft: Path | None = None
    prm: Path | None = None
    reproducible: bool = False
    deterministic: bool = False
    tasks_only: bool = False
    solves: str = ""
    remote: RemoteAddress | None = None

    def of(self, role: str) -> Path:
        """What the source's name means as the model of a role: a family's own of that role, if it has one."""
        return {"draft": self.draft, "prm": self.prm}.get(role) or self.policy


def named_sources() -> tuple[str, ...]:
    """Names of the shipped families."""
    return tuple(registered(GROUP))


def find_source(name: str, *, weights: bool = True) -> ModelSource:
    """Resolve what `--model` names; without `weights`, of a Hub id only what describes it is fetched.

    Raises `ModelLoadError` where nothing of that name is at hand.
    """
    if is_remote(name):
        return _remote_source(parse_address(name))
    if (point := registered(GROUP).get(name)) is not None:
        return point.load()()
    path = user_path(name)
    if name and _exists(path):
        return ModelSource(name=path.name or str(path), policy=path)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and not name.endswith(".gguf"):
        return ModelSource(name=name, policy=_download(name, weights=weights))
    known = ", ".join(named_sources())
    raise ModelLoadError(
        f"model {shown(name)}: no such folder or file; give a folder with safetensors and a tokenizer, "
        f"a .gguf file, a Hub id (owner/name), {SHAPE}, or one of: {known}"
    )


def _remote_source(address: RemoteAddress) -> ModelSource:
    """A model on a server. One that has a family's tokenizer is that family's policy, and reads what it
    reads."""
    if address.tokenizer is None:
        return ModelSource(name=address.name, policy=Path(), remote=address)
    family = find_source(address.tokenizer, weights=False)
    return ModelSource(
        name=address.name,
        policy=family.policy,
        tasks_only=family.tasks_only,
        solves=family.solves,
        remote=address,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _download(repo_id: str, *, weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.model", "*.jinja", "*.txt", *(["*.safetensors"] if weights else [])]
    try:
        return Path(snapshot_download(repo_id, allow_patterns=patterns))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelLoadError(
            f"model {repo_id!r}: not in the local cache and the Hub did not give it ({reason}); "
            "check the id and the network, or give a local folder"
        ) from error
