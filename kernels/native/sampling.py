"""Draws from rows of logits and their normalisers by the native operators."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p

import torch
from torch import Tensor


class _Draws(ctypes.Structure):
    """`Draws` of sampling.cpp."""

    _fields_ = [
        ("logits", c_void_p),
        ("keys", c_void_p),
        ("temperature", c_void_p),
        ("tokens", c_void_p),
        ("vocab", c_int64),
        ("draws", c_int32),
        ("threads", c_int32),
    ]


class NativeDrawing:
    """Both operators read fp32 `logits` [rows, vocab] and need no memory of that size."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self._native = native

    def normaliser(self, logits: Tensor) -> Tensor:
        """The log-sum-exp of each row, fp32 [rows]."""
        logits = _plain(logits)
        out = torch.empty(logits.shape[0])
        self._native.branchwise_normalise(
            logits.data_ptr(), out.data_ptr(), *logits.shape, torch.get_num_threads()
        )
        return out

    def tokens(self, logits: Tensor, keys: Tensor, temperatures: Sequence[float]) -> Tensor:
        """A draw from `softmax(row / temperature)` of each row, int64 [rows]; temperatures are above 0,
        `keys` int32 [2, rows] as `row_keys` makes them."""
        logits, keys = _plain(logits), keys.contiguous()
        rows, vocab = logits.shape
        temperature, drawn = torch.tensor(temperatures), torch.empty(rows, dtype=torch.int64)
        draws = _Draws(
            logits=logits.data_ptr(),
            keys=keys.data_ptr(),
            temperature=temperature.data_ptr(),
            tokens=drawn.data_ptr(),
            vocab=vocab,
            draws=rows,
            threads=torch.get_num_threads(),
        )
        self._native.branchwise_draw(ctypes.byref(draws))
        return drawn


def _plain(logits: Tensor) -> Tensor:
    assert logits.dtype == torch.float32
    return logits.contiguous()
