"""Norm, gate and rotation in torch, in the order of the kernels: fp32 or wider inside, rounded once."""

import torch
from torch import Tensor


def norm_rows(x: Tensor, weight: Tensor, eps: float, *, inside: torch.dtype = torch.float32) -> Tensor:
    """Root-mean-square norm of the rows of `x` [.., width] times `weight` [width], in the type of `x`,
    computed in `inside`."""
    wide = x.to(inside)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.to(inside)).to(x.dtype)


def add_and_norm_rows(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, inside: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """The sum of `x` and `residual` [rows, width], rounded to their type, and its norm."""
    total = (x.to(inside) + residual.to(inside)).to(residual.dtype)
    return total, norm_rows(total, weight, eps, inside=inside)


def gate_rows(gate_up: Tensor, *, inside: torch.dtype = torch.float32) -> Tensor:
    """`silu(gate) * up` [rows, width] of `gate_up` [rows, 2 * width]."""
    gate, up = gate_up.to(inside).chunk(2, -1)
    return (gate / (1.0 + torch.exp(-gate)) * up).to(gate_up.dtype)


def rotate_rows(
    rows: Tensor,
    cosine: Tensor,
    sine: Tensor,
    norm: Tensor | None,
    eps: float,
    *,
    inside: torch.dtype = torch.float32,
) -> Tensor:
    """Heads `rows` [rows, heads, head_dim], normed with `norm` [head_dim] where given, then rotated by
    `cosine` and `sine` [rows, head_dim], the first half of sines negated."""
    wide = rows.to(inside)
    if norm is not None:
        wide = norm_rows(wide, norm, eps, inside=inside)
    turned = wide * cosine.to(inside)[:, None]
    turned += torch.roll(wide, rows.shape[-1] // 2, -1) * sine.to(inside)[:, None]
    return turned.to(rows.dtype)


def rotate_and_store(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    positions: Tensor,
    slots: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    pool: Tensor,
    heads: int,
    *,
    inside: torch.dtype = torch.float32,
) -> None:
    """As the kernel's launcher of this name: rotates the queries of `qkv` in place, writes keys and values to
    `pool`, and passes over slots below 0."""
    _, packed, dim = qkv.shape
    kv_heads = (packed - heads) // 2
    query_norm, key_norm = (None, None) if norms is None else norms
    cosine, sine = cosine[positions], sine[positions]
    keys = rotate_rows(qkv[:, heads : heads + kv_heads], cosine, sine, key_norm, eps, inside=inside)
    qkv[:, :heads] = rotate_rows(qkv[:, :heads], cosine, sine, query_norm, eps, inside=inside)
    stored = slots.numel() // (2 * kv_heads)
    rows = torch.cat((keys, qkv[:, heads + kv_heads :]), 1)[:stored].reshape(-1, dim)
    pool.view(-1, dim)[slots[slots >= 0]] = rows[slots >= 0]
