"""The beginning of a prompt whose KV stays in the engine between two uses."""

from collections.abc import Sequence

import structlog

from ..engine.errors import CapacityError
from ..engine.protocol import Backend, Pinning, SeqId

log = structlog.get_logger(__name__)


class KeptPrefix:
    """Keeps one prefix of the policy at a time, for `ttl_s` seconds from when it was last named.

    `positions` are those that are kept, 0 where there is nothing to keep or no room for it, None where the
    back end keeps nothing on demand.
    """

    def __init__(self, backend: Backend, *, ttl_s: float, namespace: str, tenant: str | None) -> None:
        self._backend = backend
        self._ttl_s = ttl_s
        self._namespace = namespace
        self._tenant = tenant
        self._pinned: SeqId | None = None
        self.positions: int | None = 0 if isinstance(backend, Pinning) else None

    async def keep(self, tokens: Sequence[int]) -> None:
        """Keep the KV of `tokens`, as far as it stands or will be computed, in place of what was kept."""
        before, self._pinned, self.positions = self._pinned, None, 0
        try:
            if tokens:
                await self._pin(tokens)
        except CapacityError as error:
            log.warning("the KV of a conversation is not kept", error=str(error))
        finally:
            self._unpin(before)  # after: what both have in common stays

    async def _pin(self, tokens: Sequence[int]) -> None:
        backend = self._backend
        if not isinstance(backend, Pinning):
            self.positions = None
            return
        seq = self._pinned = backend.open(tokens, seed=0, namespace=self._namespace, tenant=self._tenant)
        try:
            self.positions = (await backend.pin(seq, self._ttl_s)).positions
        finally:
            backend.release(seq)

    def _unpin(self, seq: SeqId | None) -> None:
        if seq is not None and isinstance(self._backend, Pinning):
            self._backend.unpin(seq)

    def let_go(self) -> None:
        """Keep nothing any more. Idempotent."""
        self._unpin(self._pinned)
        self._pinned = None
        if self.positions is not None:
            self.positions = 0
