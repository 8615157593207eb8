"""The one source of randomness in sampling: a 32-bit counter hash turned into Gumbel noise.

Noise is a pure function of (branch seed, absolute position, token id, purpose). It does not depend on the
batch, the order of rows, chunking, preemption or speculation, so neither does a sampled token. The hash needs
only 32-bit wrapping multiplies, xors and shifts: the torch code below and a Triton kernel compute equal bits.
`reference_hash` states it in plain integers; the tests hold its golden values.
"""

import enum
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B9
_PURPOSE_STEP = 0x632BE59B
_KEY_STEP = 0x27D4EB2F
_MIX_1 = 0x85EBCA6B
_MIX_2 = 0xC2B2AE35
_MASK_32 = 0xFFFFFFFF

_LOWEST = 2.0**-32
_HIGHEST = 1.0 - 2.0**-24

GUMBEL_MAX = 22.181
"""No noise value exceeds this: `-log(2**-32)`, rounded up."""


class Purpose(enum.IntEnum):
    """What a draw decides. Draws of different purposes at one position are independent."""

    TOKEN = 1
    DRAFT = 2
    ACCEPT = 3


def row_keys(seeds: Sequence[int], positions: Sequence[int], purpose: Purpose) -> Tensor:
    """Two 32-bit keys per row, int32 [2, rows], from 64-bit branch seeds (read modulo 2**64) and
    positions."""
    low = torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int32)
    high = torch.tensor([_signed(seed >> 32) for seed in seeds], dtype=torch.int32)
    place = torch.tensor([_signed(position * _GOLDEN) for position in positions], dtype=torch.int32)
    place = _finalise(place + _signed(purpose * _PURPOSE_STEP))
    first = _finalise(low ^ place)
    second = _finalise(high ^ (first * _signed(_KEY_STEP) + place))
    return torch.stack((first, second))


def uniform(keys: Tensor, tokens: Tensor) -> Tensor:
    """Uniform values strictly inside (0, 1), fp32.

    `keys` int32 [2, rows]; `tokens` int32 ids, [vocab] for all rows alike or [rows, n]. Small values keep 31
    bits of resolution: they become the large Gumbel values, which decide who wins.
    """
    state = tokens * _signed(_GOLDEN) ^ keys[0, :, None]
    scratch = torch.empty_like(state)
    _fold(state, scratch, 16).mul_(_signed(_MIX_1)).bitwise_xor_(keys[1, :, None])
    _fold(state, scratch, 13).mul_(_signed(_MIX_2))
    _fold(state, scratch, 16).bitwise_and_(0x7FFFFFFF)
    return state.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(_LOWEST, _HIGHEST)


def gumbel(keys: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, fp32 [rows, n], in [-2.82, `GUMBEL_MAX`]; arguments as for `uniform`."""
    return uniform(keys, tokens).neg_().log1p_().neg_().log_().neg_()


def reference_hash(seed: int, position: int, token: int, purpose: Purpose) -> int:
    """The 32-bit hash of one draw in plain integers: the definition that every implementation must equal."""
    place = _reference_finalise(position * _GOLDEN + purpose * _PURPOSE_STEP)
    first = _reference_finalise((seed & _MASK_32) ^ place)
    second = _reference_finalise(((seed >> 32) & _MASK_32) ^ ((first * _KEY_STEP + place) & _MASK_32))
    state = (token * _GOLDEN & _MASK_32) ^ first
    state = ((state ^ state >> 16) * _MIX_1 & _MASK_32) ^ second
    state = (state ^ state >> 13) * _MIX_2 & _MASK_32
    return state ^ state >> 16


def _reference_finalise(state: int) -> int:
    """MurmurHash3's 32-bit finaliser: a bijection in which each input bit flips each output bit half of the
    time."""
    state &= _MASK_32
    state = (state ^ state >> 16) * _MIX_1 & _MASK_32
    state = (state ^ state >> 13) * _MIX_2 & _MASK_32
    return state ^ state >> 16


def _finalise(state: Tensor) -> Tensor:
    scratch = torch.empty_like(state)
    _fold(state, scratch, 16).mul_(_signed(_MIX_1))
    _fold(state, scratch, 13).mul_(_signed(_MIX_2))
    return _fold(state, scratch, 16)


def _fold(state: Tensor, scratch: Tensor, shift: int) -> Tensor:
    """`state ^= state >>> shift` in place; torch shifts int32 arithmetically, so the sign bits are masked
    off."""
    torch.bitwise_right_shift(state, shift, out=scratch)
    return state.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))


def _signed(value: int) -> int:
    """The low 32 bits of `value` as a two's complement integer."""
    value &= _MASK_32
    return value - (1 << 32) if value >= 1 << 31 else value
