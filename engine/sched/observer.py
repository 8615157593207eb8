"""What may be told of a request's life, as it happens: for metrics and logs, never for decisions."""

from .request import ExtendRequest, Request
from .sequence import Sequence


class Observer:
    """Does nothing. Called on the engine thread, at every change of a request's state and at every token."""

    def refused(self, request: int, seq: Sequence, error: Exception) -> None:
        """The request was never made: its queue is full, or what it asks cannot be."""

    def submitted(self, request: Request) -> None:
        """new -> waiting"""

    def started(self, request: Request) -> None:
        """waiting -> running"""

    def preempted(self, request: Request) -> None:
        """running -> waiting"""

    def gained(self, request: ExtendRequest) -> None:
        """A token was committed."""

    def ended(self, request: Request, error: Exception | None) -> None:
        """waiting or running -> done"""

    def parked(self, holder: Sequence) -> None:
        """The blocks of an idle sequence went back to the cache."""
