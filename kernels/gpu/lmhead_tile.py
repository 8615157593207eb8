"""A tile of the LM head's product: the logits of some rows for some tokens, in registers."""

import triton
import triton.language as tl


@triton.jit
def tile_logits(
    hidden,
    weight,
    rows,
    tokens,
    stride,
    count,
    width: tl.constexpr,
    vocab: tl.constexpr,
    tile_rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
):
    """Logits fp32 [tile_rows, columns] of `hidden` `rows` for `tokens`, summed in fp32; fp32 operands are
    multiplied as they are, without TF32.

    Rows from `count` on and tokens from `vocab` on repeat the last one: loads without a mask stay
    asynchronous copies of full width. `depth` divides `width`.
    """
    deep = tl.arange(0, depth)
    row = tl.minimum(rows, count - 1).to(tl.int64)
    token = tl.minimum(tokens, vocab - 1).to(tl.int64)
    left = hidden + row[:, None] * stride + deep[None, :]
    right = weight + token[None, :] * width + deep[:, None]
    total = tl.zeros([tile_rows, columns], tl.float32)
    for at in range(0, width, depth):
        total = tl.dot(tl.load(left + at), tl.load(right + at), total, input_precision="ieee")
    return total


def depth_of(width: int) -> int:
    """How much of `width` a step of the product takes."""
    for depth in (64, 32, 16):
        if width % depth == 0:
            return depth
    raise ValueError(f"a model of width {width}; the LM head kernels take multiples of 16")
