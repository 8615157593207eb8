"""Opening an engine for a reasoner: sources resolved, defaults chosen, models loaded."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import torch

from ..engine.engine import Engine
from ..engine.errors import ModelLoadError, UsageError
from ..engine.text.step_format import Scorer
from .source import ModelSource, find_source

MOST_THREADS = 1024


class OpenedEngine(msgspec.Struct, frozen=True):
    """An engine that is not entered yet, and the source of its policy."""

    engine: Engine
    source: ModelSource


async def open_engine(
    model: str,
    *,
    draft: str | None,
    prm: str | None,
    adapter: str | None,
    device: str,
    dtype: str,
    threads: int | None,
    kv_memory: int | None,
    max_model_len: int | None,
    max_step_tokens: int | None,
    deterministic: bool | None,
    settle: Callable[[], Awaitable[None]],
    due: Callable[[], bool],
) -> OpenedEngine:
    """Load the policy `model`, and the draft and reward models that are named or come with it.

    Raises `ModelLoadError` and `UsageError` in one line.
    """
    source = find_source(model)
    paths: dict[str, str | Path] = {"policy": source.policy}
    companions = {"draft": (draft, source.draft), "prm": (prm, source.prm)}
    for role, (named, own) in companions.items():
        if named is not None:
            paths[role] = _companion(role, named)
        elif own is not None:
            paths[role] = own
    target = _device(device)
    engine = await Engine.open_models(
        paths,
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
    _check_roles(engine)
    return OpenedEngine(engine, source)


def _check_roles(engine: Engine) -> None:
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


def _companion(role: str, name: str) -> Path:
    """A draft or reward model; the name of a family means its model of that role."""
    source = find_source(name)
    own = source.draft if role == "draft" else source.prm
    return own or source.policy


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
