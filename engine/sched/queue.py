"""Requests in the order in which they are served."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from .request import Request


def _key(request: Request) -> tuple[tuple[int, ...], int]:
    return request.key


class RequestQueue:
    """Sorted by (order, arrival): requests of one search by the order it gave them, else first come, first
    served.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """Over a snapshot, so that a request may leave while the queue is walked."""
        return iter(tuple(self._requests))

    def add(self, request: Request) -> None:
        insort(self._requests, request, key=_key)

    def remove(self, request: Request) -> None:
        index = bisect_left(self._requests, request.key, key=_key)
        assert self._requests[index] is request, request.id
        del self._requests[index]
