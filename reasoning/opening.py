"""Loading an engine for reasoners: sources resolved, defaults chosen, models loaded or found on servers."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import torch

from ..engine.engine import Engine
from ..engine.errors import ModelLoadError, UsageError
from ..engine.joined import JoinedEngine, OpenableBackend
from ..engine.remote.address import RemoteAddress
from ..engine.text.step_format import Scorer
from .source import ModelSource, find_source, named_sources

MOST_THREADS = 1024


class LoadedEngine(msgspec.Struct, frozen=True):
    """An engine that is not entered yet, and the source of its policy."""

    engine: OpenableBackend
    source: ModelSource


async def load_engine(
    model: str,
    *,
    draft: str | None = None,
    prm: str | None = None,
    judge: str | None = None,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    kv_memory: int | None = None,
    max_model_len: int | None = None,
    max_step_tokens: int | None = None,
    deterministic: bool | None = None,
    settle: Callable[[], Awaitable[None]],
    due: Callable[[], bool],
) -> LoadedEngine:
    """Load the policy `model`, the draft and reward models that are named or come with it, and the judge; or
    find them on their servers. The options of models in this process say nothing to those on servers.

    Raises `ModelLoadError` and `UsageError` in one line.
    """
    source = find_source(model)
    local: dict[str, str | Path] = {}
    remote: dict[str, RemoteAddress] = {}
    if source.remote is None:
        local["policy"] = source.policy
    else:
        remote["policy"] = source.remote
    for role, named, own in (
        ("draft", draft, source.draft),
        ("prm", prm, source.prm),
        ("judge", judge, None),
    ):
        if named is None and own is not None:
            local[role] = own
        elif named is not None:
            companion = find_source(named)
            if companion.remote is not None:
                remote[role] = companion.remote
            else:
                local[role] = companion.of(role)
    _check_remote(remote, adapter)
    backends: list[OpenableBackend] = []
    if remote:
        source, backend = await _open_remote(remote, source, max_model_len)
        backends.append(backend)
    if local:
        target = _device(device)
        engine = await Engine.open_models(
            local,
            dtype=_dtype(dtype, target),
            device=target,
            kv_memory=kv_memory,
            max_model_len=max_model_len,
            max_step_tokens=max_step_tokens or 2048,
            deterministic=source.deterministic if deterministic is None else deterministic,
            threads=_checked_threads(threads),
            adapters=None if adapter is None else {"policy": adapter},
            settle=settle,
            due=due,
        )
        backends.append(engine)
    opened = backends[0] if len(backends) == 1 else JoinedEngine(backends)
    _check_roles(opened)
    return LoadedEngine(opened, source)


def _check_remote(remote: Mapping[str, RemoteAddress], adapter: str | None) -> None:
    """Refuse what servers of the OpenAI interface do not do."""
    if "prm" in remote:
        raise UsageError(
            f"--prm {remote['prm'].name}: a server gives no rewards of single steps; "
            "give a reward model of this machine: a folder, a .gguf file or a Hub id"
        )
    if adapter is not None and "policy" in remote:
        raise UsageError(
            f"--adapter {adapter}: the model is on a server; name the adapter that the server has as #MODEL"
        )


async def _open_remote(
    addresses: Mapping[str, RemoteAddress], source: ModelSource, max_model_len: int | None
) -> tuple[ModelSource, OpenableBackend]:
    """The engine over the servers, and the source with what is known of the policy once they answered."""
    try:
        from ..engine.remote.opening import open_remote
    except ModuleNotFoundError as error:
        raise UsageError(
            f"remote models need the package {error.name}: pip install 'branchwise[remote]'"
        ) from None
    folders: list[Path] = []

    def find_folder(name: str) -> Path:
        folders.append(find_source(name, weights=False).policy)
        return folders[-1]

    engine = await open_remote(addresses, find_folder, max_model_len=max_model_len)
    if source.remote is not None and source.remote.tokenizer is None and folders:
        source = _as_family(source, folders[0])
    return source, engine


def _as_family(source: ModelSource, folder: Path) -> ModelSource:
    """A server that loaded the policy of a shipped family reads what the family reads."""
    for name in named_sources():
        try:
            family = find_source(name)
        except (ModelLoadError, ImportError):
            continue
        if family.policy.resolve() == folder.resolve():
            return msgspec.structs.replace(
                source, policy=folder, tasks_only=family.tasks_only, solves=family.solves
            )
    return msgspec.structs.replace(source, policy=folder)


def _check_roles(engine: OpenableBackend) -> None:
    """Refuse models that cannot do what their option asks of them."""
    models = engine.models
    for role, info in models.items():
        if role == "prm" and info.head != "reward":
            raise ModelLoadError(
                f"--prm {info.source}: it generates and has no reward head; give a reward model, or name its "
                f'layout in its branchwise.json: "scorer" is one of {", ".join(Scorer)}'
            )
        if role != "prm" and info.head == "reward":
            option = "--model" if role == "policy" else f"--{role}"
            raise ModelLoadError(
                f"{option} {info.source}: it has a reward head and cannot generate; "
                "give a language model, or give this one as --prm"
            )
    draft, policy = models.get("draft"), models["policy"]
    if draft is not None and draft.tokenizer.vocab_size != policy.tokenizer.vocab_size:
        raise ModelLoadError(
            f"--draft {draft.source}: {draft.tokenizer.vocab_size} token ids where {policy.source} has "
            f"{policy.tokenizer.vocab_size}; give a draft model of the same vocabulary"
        )


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"device {name!r}: give auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {name!r}: no CUDA device is available here; give cpu or auto")
    return name


def _dtype(name: str, device: str) -> str:
    if name != "auto":
        return name
    return "bfloat16" if device.startswith("cuda") else "float32"


def _checked_threads(threads: int | None) -> int | None:
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads={threads}: give a number from 1 to {MOST_THREADS}")
    return threads
