"""Where a remote model is: `remote:URL[,URL...][?tokenizer=NAME]#MODEL`."""

from urllib.parse import parse_qs, urlsplit

import msgspec

from ..errors import UsageError

PREFIX = "remote:"
SHAPE = "remote:http://HOST:PORT/v1[,URL...][?tokenizer=NAME]#MODEL"


class RemoteAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`urls` are bases that end before `/completions`, of servers that serve the same weights. `model` is the
    served name, "" for the only one that is served. `tokenizer` is a folder, a Hub id or a family whose
    tokenizer the model has, None for what the server says that it loaded.
    """

    urls: tuple[str, ...]
    model: str = ""
    tokenizer: str | None = None

    @property
    def name(self) -> str:
        """How the model is named in results: without the servers, which may change between runs."""
        return f"{PREFIX}{self.model}" if self.model else f"{PREFIX}{self.urls[0]}"


def is_remote(name: str) -> bool:
    """Whether `--model` names a model on another server."""
    return name.startswith(PREFIX)


def parse_address(name: str) -> RemoteAddress:
    """Read a name that `is_remote`. Raises `UsageError` in one line."""
    rest, _, model = name.removeprefix(PREFIX).partition("#")
    bases, _, query = rest.partition("?")
    options = parse_qs(query, keep_blank_values=True)
    unknown = sorted(set(options) - {"tokenizer"})
    if unknown:
        raise UsageError(f"model {name!r}: unknown option {unknown[0]!r}; the only one is tokenizer=NAME")
    urls = tuple(dict.fromkeys(url.strip().rstrip("/") for url in bases.split(",")))
    for url in urls:
        _check_url(name, url)
    return RemoteAddress(urls=urls, model=model, tokenizer=options.get("tokenizer", [""])[-1] or None)


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise UsageError(f"model {name!r}: {url!r} is not the URL of a server; give {SHAPE}")
