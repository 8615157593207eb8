"""API keys: who asks, what is theirs alone, and how much they may ask for."""

import hashlib
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ..engine.errors import UsageError
from .errors import ApiError

Positive = Annotated[int, Meta(ge=1)]


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one key may use; None is no limit of its own. Tokens are those that its searches spend."""

    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    running: Positive | None = None
    waiting: Annotated[int, Meta(ge=0)] | None = None


WHOLE_LINE = Quota(waiting=1 << 31)
"""The quota of all who share a server without keys: no part of the line is kept from them."""


class KeyEntry(Quota, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key of the file: itself, in letters that a header can have, or its SHA-256 in hexadecimal digits."""

    key: Annotated[str, Meta(min_length=8, pattern="^[!-~]*$")] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of `--api-keys`: a table `[keys.NAME]` for each key."""

    keys: dict[str, KeyEntry]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `namespace` separates what the engine keeps for it; `name` stands in logs."""

    name: str
    namespace: str
    quota: Quota = Quota()


class KeyRing:
    """The keys that a server knows. Without any, every key is let in: each still has a namespace of its own,
    and all together one quota without limits.

    Namespaces are keyed hashes under a secret of this process, so that none can be guessed or asked for.
    """

    def __init__(self, keys: Mapping[str, KeyEntry] | None = None) -> None:
        self._secret = secrets.token_bytes(32)
        self._callers: dict[str, Caller] = {}
        for name, entry in (keys or {}).items():
            digest = _digest_of(name, entry)
            if (other := self._callers.get(digest)) is not None:
                raise UsageError(f"API keys {other.name!r} and {name!r} are one key: give each its own")
            self._callers[digest] = Caller(name=name, namespace=self._namespace(name), quota=_quota_of(entry))

    @property
    def open(self) -> bool:
        """Whether any key is let in."""
        return not self._callers

    def caller(self, authorization: str | None) -> Caller:
        """Who sends this header `Authorization`. Raises `ApiError` 401 where nobody known does."""
        token = _bearer(authorization)
        if self.open:
            return Caller(name="anyone", namespace=self._namespace(token), quota=WHOLE_LINE)
        # Found by its digest: how long the look-up takes says nothing about the key itself.
        caller = self._callers.get(_sha256(token))
        if caller is None:
            raise ApiError(
                401,
                "no valid API key: send one of this server's keys as Authorization: Bearer KEY",
                kind="authentication_error",
                code="invalid_api_key",
            )
        return caller

    def _namespace(self, identity: str) -> str:
        return hashlib.blake2b(identity.encode(), key=self._secret, digest_size=16).hexdigest()


def read_keys(path: Path) -> KeyRing:
    """The keys of a TOML file. Raises `UsageError` in one line."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        found = msgspec.convert(data, KeyFile)
    except OSError as error:
        raise UsageError(f"--api-keys {path}: cannot be read ({error.strerror})") from error
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"--api-keys {path}: {error}") from error
    if not found.keys:
        raise UsageError(f"--api-keys {path}: names no key; write a table [keys.NAME] with key or sha256")
    return KeyRing(found.keys)


def _digest_of(name: str, entry: KeyEntry) -> str:
    if (entry.key is None) == (entry.sha256 is None):
        raise UsageError(f"API key {name!r}: give either key or sha256")
    return _sha256(entry.key) if entry.key is not None else entry.sha256 or ""


def _quota_of(entry: KeyEntry) -> Quota:
    return Quota(**{name: getattr(entry, name) for name in Quota.__struct_fields__})


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
