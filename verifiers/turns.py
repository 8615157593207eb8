"""Who runs beside whom: many side by side, or one alone on this process's account of the machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """One run. `had_company`: another ran at some time beside it."""

    def __init__(self) -> None:
        self.had_company = False


class Turns:
    """Lets programs run together, or one without any other. Any thread may ask."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: set[Turn] = set()
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[Turn]:
        """Run with whoever else does; wait only for one that runs alone."""
        turn = Turn()
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._running.add(turn)
            if len(self._running) > 1:
                for one in self._running:
                    one.had_company = True
        try:
            yield turn
        finally:
            with self._changed:
                self._running.discard(turn)
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run once all others are done, and let none begin meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: not self._running)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
