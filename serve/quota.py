"""Rates: how many requests and tokens a key may use in a minute."""

import math
from collections.abc import Callable
from time import monotonic

from .errors import bad_request, too_many
from .keys import Caller

MINUTE = 60.0


class Bucket:
    """A token bucket that holds what a minute allows and fills evenly."""

    def __init__(self, per_minute: int, now: Callable[[], float]) -> None:
        self.capacity = per_minute
        self._level = float(per_minute)
        self._now = now
        self._at = now()

    def wait_s(self, amount: int) -> float:
        """Seconds until `amount` may be taken; 0 where it may be now."""
        self._fill()
        return max(0.0, amount - self._level) * MINUTE / self.capacity

    def take(self, amount: int) -> None:
        self._fill()
        self._level -= amount

    def give_back(self, amount: int) -> None:
        self._fill()
        self._level = min(self.capacity, self._level + amount)

    def _fill(self) -> None:
        now = self._now()
        self._level = min(self.capacity, self._level + (now - self._at) * self.capacity / MINUTE)
        self._at = now


class Reservation:
    """Tokens that a request may spend, held until it is known what it did spend."""

    def __init__(self, bucket: Bucket | None, tokens: int) -> None:
        self._bucket = bucket
        self._held = tokens

    def settle(self, spent: int) -> None:
        """Give back what was not spent. Idempotent."""
        if self._bucket is not None:
            self._bucket.give_back(max(0, self._held - spent))
        self._bucket, self._held = None, 0


class Rates:
    """The buckets of all keys that have a rate."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._requests: dict[str, Bucket] = {}
        self._tokens: dict[str, Bucket] = {}

    def reserve(self, caller: Caller, tokens: int) -> Reservation:
        """Count a request that may spend `tokens`. Raises `ApiError`: 429 where its minute is used up, 400
        where no minute would ever cover it."""
        requests = self._bucket(self._requests, caller, caller.quota.requests_per_minute)
        bucket = self._bucket(self._tokens, caller, caller.quota.tokens_per_minute)
        if bucket is not None and tokens > bucket.capacity:
            raise bad_request(
                f"budget of {tokens} tokens: this key has {bucket.capacity} a minute; give a smaller budget",
                param="budget",
            )
        for found, amount, what in ((requests, 1, "requests"), (bucket, tokens, "tokens")):
            if found is not None and (wait := found.wait_s(amount)) > 0:
                raise too_many(f"this key has {found.capacity} {what} a minute", math.ceil(wait))
        if requests is not None:
            requests.take(1)
        if bucket is not None:
            bucket.take(tokens)
        return Reservation(bucket, tokens)

    def _bucket(self, buckets: dict[str, Bucket], caller: Caller, per_minute: int | None) -> Bucket | None:
        if per_minute is None:
            return None
        if caller.name not in buckets:
            buckets[caller.name] = Bucket(per_minute, self._now)
        return buckets[caller.name]
