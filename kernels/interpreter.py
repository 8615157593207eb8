"""The bf16 correction of Triton's interpreter.

The interpreter holds bf16 as uint16 words and computes with the words: `tl.dot` and sums of bf16 operands
give garbage without a warning, and a conversion from fp32 truncates. Here operands are widened to fp32, and
results are rounded to nearest even, as on a GPU. Triton 3.6 with numpy 2.4 cannot make a range of a loaded
value either: that is corrected too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

_done = False

_CONVERSIONS = (
    "create_fp_ext",
    "create_fp_trunc",
    "create_si_to_fp",
    "create_ui_to_fp",
    "create_fp_to_si",
    "create_fp_to_ui",
)


def correct_bf16() -> None:
    """Make bf16 exact in the interpreter of this process; before any kernel is made. The second call does
    nothing."""
    global _done
    if not _done:
        _done = True
        _correct()


def widened(words: np.ndarray) -> np.ndarray:
    """The fp32 values of bf16 `words` uint16."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """The bf16 words uint16 nearest to `values`, ties to even; NaN stays NaN."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    words = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), words).reshape(values.shape)


def _correct() -> None:
    import triton.language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    make: Any = interpreter.TensorHandle
    bf16 = tl.bfloat16
    dot, cast, float_cast = builder.create_dot, builder.cast_impl, builder.create_fp_to_fp
    binary, unary = builder.binary_op, builder.unary_op

    def is_bf16(handle: Any) -> bool:
        return handle.dtype.scalar == bf16

    def as_fp32(handle: Any) -> Any:
        return make(widened(handle.data), tl.float32) if is_bf16(handle) else handle

    def create_dot(self: Any, left: Any, right: Any, total: Any, *rest: Any) -> Any:
        return dot(self, as_fp32(left), as_fp32(right), total, *rest)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if is_bf16(source):
            wide = as_fp32(source)
            return wide if target.scalar == tl.float32 else cast_impl(self, wide, target)
        if target.scalar == bf16:
            return make(rounded(source.data.astype(np.float32)), bf16)
        return cast(self, source, target)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if is_bf16(source) or target.scalar == bf16:
            return cast_impl(self, source, target)
        return float_cast(self, source, target, rounding)

    def binary_op(self: Any, left: Any, right: Any, operation: Callable[..., np.ndarray]) -> Any:
        if not (is_bf16(left) and is_bf16(right)):
            return binary(self, left, right, operation)
        result = operation(widened(left.data), widened(right.data))
        return make(result, tl.int1) if result.dtype == np.bool_ else make(rounded(result), bf16)

    def unary_op(self: Any, operand: Any, operation: Callable[..., np.ndarray]) -> Any:
        if not is_bf16(operand):
            return unary(self, operand, operation)
        return make(rounded(operation(widened(operand.data))), bf16)

    builder.create_dot, builder.cast_impl, builder.create_fp_to_fp = create_dot, cast_impl, create_fp_to_fp
    builder.binary_op, builder.unary_op = binary_op, unary_op
    for name in _CONVERSIONS:
        setattr(builder, name, lambda self, source, target: self.cast_impl(source, target))

    patch = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).reshape(-1)[0]))

    interpreter._patch_lang_tensor = patch_lang_tensor
