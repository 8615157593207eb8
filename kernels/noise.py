"""The one source of randomness in sampling: a 32-bit counter hash turned into noise.

Noise is a pure function of (branch seed, absolute position, token id, purpose). It does not depend on the
batch, the order of rows, chunking, preemption or speculation, so neither does a sampled token. The hash needs
only 32-bit wrapping multiplies, xors and shifts: the torch code below and a Triton kernel compute equal bits.
`reference_hash` states it in plain integers; the tests hold its golden values.
"""

import enum
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_GOLDEN = np.uint32(0x9E3779B9)
_PURPOSE_STEP = np.uint32(0x632BE59B)
_KEY_STEP = np.uint32(0x27D4EB2F)
_MIX_1 = np.uint32(0x85EBCA6B)
_MIX_2 = np.uint32(0xC2B2AE35)
_SHIFT_13 = np.uint32(13)
_SHIFT_16 = np.uint32(16)
_LOW_31 = np.uint32(0x7FFFFFFF)
_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF

_LOWEST = 2.0**-32
_HIGHEST = 1.0 - 2.0**-24


class Purpose(enum.IntEnum):
    """What a draw decides. Draws of different purposes at one position are independent."""

    TOKEN = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4


def row_keys(seeds: Sequence[int], positions: Sequence[int], purpose: Purpose) -> Tensor:
    """Two 32-bit keys per row, int32 [2, rows], from 64-bit branch seeds (read modulo 2**64) and
    positions."""
    seed = np.array([seed & _MASK_64 for seed in seeds], dtype=np.uint64)
    place = np.array(positions, dtype=np.uint64).astype(np.uint32) * _GOLDEN
    place = _finalise(place + np.uint32(purpose * int(_PURPOSE_STEP) & _MASK_32))
    first = _finalise(seed.astype(np.uint32) ^ place)
    second = _finalise((seed >> np.uint64(32)).astype(np.uint32) ^ (first * _KEY_STEP + place))
    return torch.from_numpy(np.stack((first, second)).view(np.int32))


def uniform(keys: Tensor, tokens: Tensor) -> Tensor:
    """Uniform values strictly inside (0, 1), fp32 [rows, n].

    `keys` int32 [2, rows]; `tokens` int32 ids, [n] for all rows alike or [rows, n]. Small values keep 31 bits
    of resolution: they decide who wins.
    """
    bits = _hash_on_host(keys, tokens) if tokens.device.type == "cpu" else _hash_on_device(keys, tokens)
    return bits.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(_LOWEST, _HIGHEST)


def exponential(keys: Tensor, tokens: Tensor) -> Tensor:
    """Standard exponential noise, fp32 [rows, n], never 0; arguments as for `uniform`.

    The token with the largest `weight / exponential` is a draw in proportion to the weights: the Gumbel-max
    trick with its outer logarithm left out.
    """
    return uniform(keys, tokens).neg_().log1p_().neg_()


def gumbel(keys: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, fp32 [rows, n]: minus the logarithm of `exponential`."""
    return exponential(keys, tokens).log_().neg_()


def reference_hash(seed: int, position: int, token: int, purpose: Purpose) -> int:
    """The 32-bit hash of one draw in plain integers: the definition that every implementation must equal."""
    golden, step = int(_GOLDEN), int(_KEY_STEP)
    place = _reference_finalise(position * golden + purpose * int(_PURPOSE_STEP))
    first = _reference_finalise(seed ^ place)
    second = _reference_finalise(seed >> 32 ^ (first * step + place))
    state = (token * golden ^ first) & _MASK_32
    state = ((state ^ state >> 16) * int(_MIX_1) ^ second) & _MASK_32
    state = (state ^ state >> 13) * int(_MIX_2) & _MASK_32
    return state ^ state >> 16


def _reference_finalise(state: int) -> int:
    """MurmurHash3's 32-bit finaliser: a bijection in which each input bit flips each output bit half of the
    time."""
    state &= _MASK_32
    state = (state ^ state >> 16) * int(_MIX_1) & _MASK_32
    state = (state ^ state >> 13) * int(_MIX_2) & _MASK_32
    return state ^ state >> 16


def _finalise(state: np.ndarray) -> np.ndarray:
    state = (state ^ state >> _SHIFT_16) * _MIX_1
    state = (state ^ state >> _SHIFT_13) * _MIX_2
    return state ^ state >> _SHIFT_16


def _hash_on_host(keys: Tensor, tokens: Tensor) -> Tensor:
    """31 bits per (row, token), int32. numpy has unsigned words and so needs half of torch's passes."""
    first, second = keys.numpy().view(np.uint32)[:, :, None]
    state = tokens.numpy().view(np.uint32) * _GOLDEN ^ first
    scratch = np.empty_like(state)
    for shift, factor in ((_SHIFT_16, _MIX_1), (_SHIFT_13, _MIX_2)):
        np.right_shift(state, shift, out=scratch)
        np.bitwise_xor(state, scratch, out=state)
        np.multiply(state, factor, out=state)
        if shift is _SHIFT_16:
            np.bitwise_xor(state, second, out=state)
    np.right_shift(state, _SHIFT_16, out=scratch)
    np.bitwise_xor(state, scratch, out=state)
    return torch.from_numpy(np.bitwise_and(state, _LOW_31, out=state).view(np.int32))


def _hash_on_device(keys: Tensor, tokens: Tensor) -> Tensor:
    """`_hash_on_host` in torch operations, for any device."""
    state = tokens * _signed(int(_GOLDEN)) ^ keys[0, :, None]
    scratch = torch.empty_like(state)
    _fold(state, scratch, 16).mul_(_signed(int(_MIX_1))).bitwise_xor_(keys[1, :, None])
    _fold(state, scratch, 13).mul_(_signed(int(_MIX_2)))
    return _fold(state, scratch, 16).bitwise_and_(int(_LOW_31))


def _fold(state: Tensor, scratch: Tensor, shift: int) -> Tensor:
    """`state ^= state >>> shift` in place; torch shifts int32 arithmetically, so the sign bits are masked
    off."""
    torch.bitwise_right_shift(state, shift, out=scratch)
    return state.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))


def _signed(value: int) -> int:
    """A 32-bit word as a two's complement integer."""
    return value - (1 << 32) if value >= 1 << 31 else value
