"""The noise of `kernels.noise` in Triton: the same 32-bit hash, bit for bit, in unsigned words that wrap.

Uniform values are equal bit for bit too; exponential ones to a few units in the last place, for a GPU has no
accurate `log1p`.
"""

import triton
import triton.language as tl

_GOLDEN = tl.constexpr(0x9E3779B9)
_MIX_1 = tl.constexpr(0x85EBCA6B)
_MIX_2 = tl.constexpr(0xC2B2AE35)
_LOW_31 = tl.constexpr(0x7FFFFFFF)
_UNIT = tl.constexpr(2.0**-31)
_LOWEST = tl.constexpr(2.0**-32)
_HIGHEST = tl.constexpr(1.0 - 2.0**-24)


@triton.jit
def noise_bits(first, second, tokens):
    """The hash uint32 of int32 `tokens` under a row's two keys int32; all three broadcast."""
    state = (tokens.to(tl.uint32, bitcast=True) * _GOLDEN) ^ first.to(tl.uint32, bitcast=True)
    state = ((state ^ (state >> 16)) * _MIX_1) ^ second.to(tl.uint32, bitcast=True)
    state = (state ^ (state >> 13)) * _MIX_2
    return state ^ (state >> 16)


@triton.jit
def uniform(first, second, tokens):
    """Fp32 strictly inside (0, 1), equal to `kernels.noise.uniform`; arguments as for `noise_bits`."""
    bits = (noise_bits(first, second, tokens) & _LOW_31).to(tl.int32, bitcast=True)
    value = (bits.to(tl.float32) + 0.5) * _UNIT
    return tl.minimum(tl.maximum(value, _LOWEST), _HIGHEST)


@triton.jit
def exponential(first, second, tokens):
    """Standard exponential noise fp32, never 0; arguments as for `noise_bits`.

    Small values decide who wins. There `log(1 - u)` has no digits left, and so they come from the series
    u + u**2/2 + ... + u**8/8, which is 7e-9 short of the logarithm at its bound. The products and sums are
    fused by name, for equal noise in every kernel that it is compiled into.
    """
    value = uniform(first, second, tokens)
    series = tl.fma(value, 1 / 8, 1 / 7)
    series = tl.fma(value, series, 1 / 6)
    series = tl.fma(value, series, 1 / 5)
    series = tl.fma(value, series, 1 / 4)
    series = tl.fma(value, series, 1 / 3)
    series = tl.fma(value, series, 1 / 2)
    series = tl.fma(value, series, 1.0)
    return tl.where(value < 0.125, value * series, -tl.log(1.0 - value))
