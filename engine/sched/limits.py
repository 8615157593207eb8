"""Sizes that bound a step and a queue."""

import msgspec


class StepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a step: rows in all, rows of one request, and rows of logits kept per model for forked
    members. A tenant may have `max_waiting` requests in the queue, all tenants together
    `max_waiting_in_all`. `watermark` is the part of a pool that an
    admission leaves to those that run, so that they can grow.

    `verify_fixed_rows`: how many rows more would double the time of a step of few rows, as long as no steps
    were timed. 30 is read off rough timings of the shipped policy, not a median.
    """

    max_rows: int = 2048
    max_chunk_rows: int = 2048
    max_kept_rows: int = 64
    max_waiting: int = 16384
    max_waiting_in_all: int = 65536
    watermark: float = 0.01
    verify_fixed_rows: float = 30.0


DEFAULT_LIMITS = StepLimits()
