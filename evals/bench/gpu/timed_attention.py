"""How long attention takes, against the bound, and against the same rows with keys of their own."""

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from torch.nn.functional import scaled_dot_product_attention

from ....kernels import bounds
from ....kernels.tables import RowSpan
from .attention_case import AttentionCase
from .rows import Goal, Row, rated, timed
from .setting import Setting
from .spans import beam, best_of, draft_trees, tree_of, unshared

SECTION = "attention"
_MOST_LAYERS = 32


class Work(NamedTuple):
    """A step: its spans by block size; the goals for its microseconds per layer and for how many times faster
    it is than unshared."""

    name: str
    spans: Callable[[int], list[RowSpan]]
    most_us: float | None = None
    least_gain: float | None = None


FULL = (
    Work("plain decode N=64 ctx=2560", lambda size: unshared(best_of(64, 2048, 512, size)), 208),
    Work("best-of-64 P=2048 S=512", lambda size: best_of(64, 2048, 512, size), 55, 2.5),
    Work("beam 64 keep 8 P=512", lambda size: beam(64, 8, 512, 1024, 64, size), 28, 3),
    Work("best-of-256 P=4096 S=256", lambda size: best_of(256, 4096, 256, size), 125, 6),
    Work("best-of-8 P=256 S=64", lambda size: best_of(8, 256, 64, size), None, 1),
    Work("draft trees 8x16 P=4096", lambda size: draft_trees(8, 16, 4096, size), 55),
)
"""The goals of the kernels' notes: shapes of Llama 3 8B, bf16, an H200."""


def works(setting: Setting) -> tuple[Work, ...]:
    """Those of an 8B model; small ones without goals elsewhere."""
    if setting.sizes.full:
        return FULL
    rows = setting.sizes.tree_rows
    return (
        Work("best-of", lambda size: best_of(rows, 2 * size, size // 2, size)),
        Work("draft trees", lambda size: draft_trees(1, rows, size, size)),
    )


def rows(setting: Setting) -> Iterator[Row]:
    """With the attention that the dispatch chooses. Keys of several layers take more than the L2 cache, as in
    a model; times are per layer."""
    for work in setting.mine(works(setting)):
        spans = work.spans(setting.sizes.page)
        seconds, case = yield from _timed(setting, work.name, spans, work.most_us)
        if work.least_gain is not None or not setting.sizes.full:
            alone, _ = yield from _timed(setting, f"{work.name}, unshared", unshared(spans), None)
            goal = None if work.least_gain is None else Goal(work.least_gain, at_least=True)
            told = f"{len(spans)} rows"
            name = f"{work.name}: gain over unshared"
            yield rated(SECTION, name, "x", alone / seconds, shape=told, goal=goal)
        if "plain decode" in work.name:
            yield _dense(setting, case)


def _timed(
    setting: Setting, name: str, spans: list[RowSpan], most_us: float | None
) -> Generator[Row, None, tuple[float, AttentionCase]]:
    """One row; returns the seconds per layer, and the case."""
    size, shape = setting.sizes.page, setting.sizes.shape
    layers = layers_for(setting, spans)
    case = AttentionCase(setting, spans, size, layers=layers)
    attention = case.dispatched()
    planned = attention.plan(case.spans)
    seconds = setting.timer.seconds(lambda: case.run(attention, planned)) / layers
    tree = case.tree(planned)
    bound = bounds.attention(shape, tree).seconds(setting.machine)
    told = f"{tree.rows} rows, {tree.unique} positions, {tree.slots} slots, blocks of {size}"
    goal = None if most_us is None else Goal(most_us)
    yield timed(SECTION, name, seconds, bound, shape=told, goal=goal, note=f"{layers} layers in turn")
    return seconds, case


def layers_for(setting: Setting, spans: list[RowSpan]) -> int:
    """Layers whose keys and values are three times what the L2 cache holds."""
    positions = tree_of(spans, setting.sizes.page, 0).unique
    needed = 3 * setting.machine.l2_bytes // (positions * setting.sizes.shape.kv_bytes) + 1
    return min(needed, _MOST_LAYERS)


def _dense(setting: Setting, case: AttentionCase) -> Row:
    """Torch's own attention of as many rows over contiguous keys of the same lengths: what is left out is the
    paging."""
    shape, count = setting.sizes.shape, len(case.spans)
    length = case.spans[0].start + 1
    keys, values = (setting.normal(count, shape.kv_heads, length, shape.head_dim) for _ in range(2))
    query = setting.normal(count, shape.heads, 1, shape.head_dim)

    def work() -> object:
        return scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    tree = bounds.Tree(count, count * length, count * length, 0)
    bound = bounds.attention(shape, tree).seconds(setting.machine)
    return timed(
        SECTION, "torch, dense", setting.timer.seconds(work), bound, shape=f"{count} rows of {length}"
    )
