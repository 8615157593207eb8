"""Which of several servers a branch goes to: always the one that holds its prefix."""

import hashlib
from collections.abc import Sequence

import msgspec


def root_key(namespace: str, prompt: Sequence[int]) -> bytes:
    """What the branches of one root have in common, so that they go to one server and share its cache."""
    return hashlib.blake2b(msgspec.msgpack.encode((namespace, list(prompt))), digest_size=16).digest()


def preference(key: bytes, urls: Sequence[str]) -> tuple[str, ...]:
    """The servers in the order of rendezvous hashing (Thaler and Ravishankar 1998, "Using name-based mappings
    to increase hit rates"): when one is lost or added, only the keys that were, or will be, its own move.
    """

    def weight(url: str) -> bytes:
        return hashlib.blake2b(url.encode(), key=key, digest_size=8).digest()

    return tuple(sorted(urls, key=lambda url: (weight(url), url), reverse=True))
