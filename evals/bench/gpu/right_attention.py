"""Whether the attention kernels are right, in every form that the dispatch can choose."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from ....kernels.bounds import Shape
from ....kernels.tables import RowSpan
from .attention_case import AttentionCase
from .rows import Row, checked, held
from .setting import TOLERANCE, Setting, relative_error
from .spans import beam, beside, best_of, draft_trees, prefills

SECTION = "attention is right"
_PROGRAMS = 128


QWEN_HALF_B = Shape(
    layers=24, heads=14, kv_heads=2, head_dim=64, hidden=896, intermediate=4864, vocabulary=151936
)
"""The shape of Qwen2.5 0.5B: seven query heads per KV head, of 64 values."""


class _Form(NamedTuple):
    """A step, and the options that compile another build for it."""

    name: str
    spans: Callable[[int], list[RowSpan]]
    window: int | None = None
    chunked: bool = False
    softcap: float | None = None


class _Job(NamedTuple):
    """A form at blocks of `size`, heads of `shape` and a type, with the latter's name."""

    form: _Form
    size: int
    shape: Shape
    dtype: torch.dtype
    kind: str


def rows(setting: Setting) -> Iterator[Row]:
    """The block size of the engine in all forms, the others in those that read most; the same in fp32, and
    groups that are no power of two."""
    for job in setting.mine(_jobs(setting)):
        yield from _both(setting, job)


def _jobs(setting: Setting) -> Iterator[_Job]:
    sizes = setting.sizes
    forms = _forms(setting)
    for kind in setting.kinds:
        for form in forms:
            yield _Job(form, sizes.page, *kind)
    for size in sizes.pages:
        if size != sizes.page:
            for form in (forms[0], forms[-1]):
                yield _Job(form, size, *setting.kinds[0])
    if sizes.full:
        yield _Job(forms[0], sizes.page, QWEN_HALF_B, *setting.kinds[0][1:])


def _forms(setting: Setting) -> list[_Form]:
    sizes = setting.sizes
    n, context = sizes.tree_rows, sizes.context
    part = max(2, n // 8)

    def tree(size: int) -> list[RowSpan]:
        return best_of(n, context + 3, size + 5, size)

    def chunk(size: int) -> list[RowSpan]:
        return beside(best_of(part, context, 3, size), prefills([(context // 2, n), (0, part)], size))

    def drafts(size: int) -> list[RowSpan]:
        return beside(draft_trees(part, min(16, n), context // 2, size), best_of(part, context // 2, 9, size))

    def beams(size: int) -> list[RowSpan]:
        return beam(n, n // 2, size * 4, size * 2, size // 2 + 1, size)

    return [
        _Form("one prompt", tree),
        _Form("beams", beams),
        _Form("prefill beside decoding", chunk),
        _Form("draft trees", drafts),
        _Form("sliding window", chunk, window=max(3, context // 3)),
        _Form("softcap", beams, softcap=20.0),
        _Form("deterministic", drafts, chunked=True),
    ]


def _both(setting: Setting, job: _Job) -> Iterator[Row]:
    """By pointers, and by descriptors where the device has them and a key is a multiple of 16 bytes."""
    form, size, shape, dtype, kind = job
    case = AttentionCase(setting, form.spans(size), size, shape=shape, dtype=dtype)
    expected = case.exact(form.window, form.softcap)
    descriptors = setting.tma and shape.head_dim * dtype.itemsize % 16 == 0 and form.window is None
    for tma in (False, True) if descriptors else (False,):
        attention = case.items(
            tma=tma,
            programs=_PROGRAMS,
            windows=(form.window,),
            chunk=4 * size if form.chunked else None,
            softcap=form.softcap,
        )
        planned = attention.plan(case.spans)
        assert planned.order == list(range(len(case.spans)))
        for buffer in (attention._partial, attention._partial_lse):
            buffer.fill_(float("nan"))  # what no item writes must not be read
        case.out.fill_(float("nan"))
        case.run(attention, planned, form.window)
        error = relative_error(case.out, expected)
        path = "descriptors" if tma else "pointers"
        told = f"{kind} {shape.heads}/{shape.kv_heads}x{shape.head_dim}, {case.rows} rows, blocks of {size}"
        yield checked(SECTION, f"{form.name}, {path}", error, TOLERANCE[dtype], shape=told)
        first = case.out.clone()
        case.run(attention, planned, form.window)
        if not torch.equal(first, case.out):
            yield held(SECTION, f"{form.name}, {path}: again the same bits", False, shape=told)
