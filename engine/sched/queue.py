"""Requests in the order in which they are served."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator

from .request import Key, Request


def _key(request: Request) -> Key:
    return request.key


class RequestQueue:
    """Sorted by (priority, order, arrival): the more urgent first, requests of one search by the order it
    gave them, else first come, first served. `tenants` counts the requests of each tenant that has any.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self.tenants: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """Over a snapshot, so that a request may leave while the queue is walked."""
        return iter(tuple(self._requests))

    def add(self, request: Request) -> None:
        insort(self._requests, request, key=_key)
        self.tenants[request.seq.tenant] += 1

    def remove(self, request: Request) -> None:
        index = bisect_left(self._requests, request.key, key=_key)
        assert self._requests[index] is request, request.id
        del self._requests[index]
        tenant = request.seq.tenant
        self.tenants[tenant] -= 1
        if not self.tenants[tenant]:
            del self.tenants[tenant]
