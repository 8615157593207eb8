"""Opening remote models: who serves them, what their text is made of, and how they are asked."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import httpx2
import msgspec
import structlog

from ..errors import ModelLoadError, ServerFailed
from ..protocol import ModelInfo
from .address import RemoteAddress
from .engine import LEASE_TOKENS, RemoteEngine
from .folder import describe, describe_served
from .model import RemoteModel
from .probe import OTHER_TOKENS, SAMPLE, probe
from .served_tokenizer import ServedTokenizer
from .servers import RetryPolicy, Servers, ServerTrouble
from .wire import ServedModel

log = structlog.get_logger(__name__)

KEY = "BRANCHWISE_REMOTE_KEY"
"""Environment variable of the key that is sent to every server, as a bearer token."""
_CONNECT_S, _SEND_S = 10.0, 60.0

FindFolder = Callable[[str], Path]
"""The folder of a tokenizer that is named by a path, a Hub id or a family. Raises `ModelLoadError`."""


class _Found(NamedTuple):
    """A model on the first of its servers that answers."""

    url: str
    served: ServedModel


async def open_remote(
    addresses: Mapping[str, RemoteAddress],
    find_folder: FindFolder,
    *,
    max_model_len: int | None = None,
    retry: RetryPolicy | None = None,
    lease_tokens: int = LEASE_TOKENS,
) -> RemoteEngine:
    """An engine over the models at `addresses`, by role; it is then entered with `async with`.

    Raises `ModelLoadError` in one line where no server of a model answers, where one does not serve it, or
    where its tokenizer is not to be had.
    """
    policy = retry or RetryPolicy()
    http = _client(policy)
    try:
        models = {
            role: await _open(role, address, http, policy, find_folder, max_model_len)
            for role, address in addresses.items()
        }
        return RemoteEngine(models, http, lease_tokens=lease_tokens)
    except BaseException:
        await http.aclose()
        raise


def _client(policy: RetryPolicy) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(connect=_CONNECT_S, read=policy.silence_s, write=_SEND_S, pool=None)
    # As many connections as there are branches: the servers queue, not the client.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx2.AsyncClient(headers=_headers(), timeout=timeout, limits=limits)


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY)
    return {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})


async def _open(
    role: str,
    address: RemoteAddress,
    http: httpx2.AsyncClient,
    retry: RetryPolicy,
    find_folder: FindFolder,
    max_model_len: int | None,
) -> RemoteModel:
    servers = Servers(http, address.urls, retry)
    found = await _find(address, servers)
    info = await anyio.to_thread.run_sync(_describe, role, address, found, find_folder, max_model_len)
    try:
        theirs = await servers.tokens(found.url, found.served.id, SAMPLE)
        if theirs is not None and list(theirs) != info.tokenizer.encode(SAMPLE):
            raise ModelLoadError(OTHER_TOKENS)
        dialect = await probe(servers, found.url, found.served.id, info.tokenizer)
    except (ServerTrouble, ServerFailed, ModelLoadError) as error:
        raise ModelLoadError(f"model {address.name}: {error}") from None
    return RemoteModel(info=info, served=found.served.id, servers=servers, dialect=dialect)


async def _find(address: RemoteAddress, servers: Servers) -> _Found:
    """The model on its servers: at least one must answer, and all that answer must serve it."""
    found: list[_Found] = []
    silent: list[str] = []
    for url in address.urls:
        try:
            listed = (await servers.models(url)).data
        except (ServerTrouble, ServerFailed) as error:
            log.warning("remote server is not there", error=str(error))
            servers.mark(url, up=False)
            silent.append(str(error))
            continue
        found.append(_Found(url, _chosen(address, url, listed)))
    if not found:
        raise ModelLoadError(f"model {address.name}: no server answers ({'; '.join(silent)})")
    lengths = [one.served.max_model_len for one in found if one.served.max_model_len]
    shortest = min((length for length in lengths if length > 0), default=None)
    return found[0]._replace(served=msgspec.structs.replace(found[0].served, max_model_len=shortest))


def _chosen(address: RemoteAddress, url: str, listed: tuple[ServedModel, ...]) -> ServedModel:
    names = ", ".join(model.id for model in listed) or "nothing"
    if not address.model and len(listed) == 1:
        return listed[0]
    for model in listed:
        if model.id == address.model:
            return model
    wanted = f"{address.model!r} is not among them" if address.model else "name one of them behind #"
    raise ModelLoadError(f"model {address.name}: {url} serves {names}; {wanted}")


def _describe(
    role: str, address: RemoteAddress, found: _Found, find_folder: FindFolder, max_model_len: int | None
) -> ModelInfo:
    """The model's facts, by the folder where its tokenizer and chat template lie, else by its server."""
    lengths = [length for length in (max_model_len, found.served.max_model_len) if length is not None]
    length = min(lengths) if lengths else None
    named = address.tokenizer or found.served.root or found.served.id
    try:
        return describe(find_folder(named), name=role, source=address.name, max_model_len=length)
    except ModelLoadError as error:
        if address.tokenizer is not None:
            raise
        missing = error
    try:
        tokenizer = ServedTokenizer.open(found.url, found.served.id, _headers())
        return describe_served(tokenizer, name=role, source=address.name, max_model_len=length)
    except (ModelLoadError, ServerFailed) as error:
        raise ModelLoadError(
            f"model {address.name}: the server loaded {named!r}, whose tokenizer is not to be had here "
            f"({missing}), nor from the server ({error}); name its folder or Hub id: "
            f"remote:...?tokenizer=NAME#{found.served.id}"
        ) from None
