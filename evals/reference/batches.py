"""Training batches: fresh traces of the task mixture, grouped by length within a pool and padded."""

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .tasks import arithmetic, countdown, toolcall
from .tasks.trace import Split, Trace
from .vocabulary import BOS_ID, PAD_ID, encode

TASKS = (countdown, arithmetic, toolcall)
TASK_WEIGHTS = (0.60, 0.37, 0.03)
BUCKET = 16
POOL_TRACES = 4096


class TraceBatch(NamedTuple):
    """Token ids [B, T] int64, padded; loss weights [B, T] fp32 of the token at that position (0 or 1)."""

    token_ids: Tensor
    weights: Tensor


Row = tuple[list[int], list[int]]


def encode_trace(trace: Trace) -> Row:
    """Token ids of bos, prompt and completion, and the loss weight of each."""
    token_ids = [BOS_ID, *encode(trace.prompt)]
    weights = [0] * len(token_ids)
    for span in trace.spans:
        span_ids = encode(span.text)
        token_ids += span_ids
        weights += [int(span.trained)] * len(span_ids)
    return token_ids, weights


def draw_trace(rng: random.Random, task_weights: tuple[float, ...] = TASK_WEIGHTS) -> Trace:
    """A training trace of the task mixture."""
    task = rng.choices(TASKS, task_weights)[0]
    return task.generate_trace(rng, Split.TRAIN)[1]


def bucket_length(length: int) -> int:
    """`length` rounded up to the bucket."""
    return -(-length // BUCKET) * BUCKET


def pad_rows(rows: list[Row], length: int) -> TraceBatch:
    """Rows padded on the right to `length`."""
    token_ids = np.full((len(rows), length), PAD_ID, dtype=np.int64)
    weights = np.zeros((len(rows), length), dtype=np.float32)
    for index, (row_ids, row_weights) in enumerate(rows):
        token_ids[index, : len(row_ids)] = row_ids
        weights[index, : len(row_ids)] = row_weights
    return TraceBatch(torch.from_numpy(token_ids), torch.from_numpy(weights))


def trace_batches(
    seed: int, tokens_per_batch: int, task_weights: tuple[float, ...] = TASK_WEIGHTS
) -> Iterator[TraceBatch]:
    """Endless batches of about `tokens_per_batch` positions, each of one bucket, in random order."""
    rng = random.Random(seed)
    while True:
        by_length: dict[int, list[Row]] = {}
        for _ in range(POOL_TRACES):
            row = encode_trace(draw_trace(rng, task_weights))
            by_length.setdefault(bucket_length(len(row[0])), []).append(row)
        batches = []
        for length, rows in by_length.items():
            size = max(1, tokens_per_batch // length)
            batches += [(length, rows[start : start + size]) for start in range(0, len(rows), size)]
        rng.shuffle(batches)
        for length, rows in batches:
            yield pad_rows(rows, length)
