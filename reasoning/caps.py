"""Nested caps in force for the current task (`Search.phase`): inherited by the tasks it starts."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .ledger import Cap

_CAPS: ContextVar[tuple[Cap, ...]] = ContextVar("branchwise_caps", default=())


def caps_in_force() -> tuple[Cap, ...]:
    """Caps of the enclosing phases, outermost first."""
    return _CAPS.get()


@contextmanager
def under(cap: Cap) -> Iterator[None]:
    """Put one more cap in force inside the block."""
    token = _CAPS.set((*_CAPS.get(), cap))
    try:
        yield
    finally:
        _CAPS.reset(token)
