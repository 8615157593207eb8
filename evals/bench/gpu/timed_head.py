"""How long draws, scores and the verification of drafts take, against their bounds and against torch."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ....kernels import bounds
from ....kernels.drawn import Drawn, Scored
from ....kernels.gpu.chain_verify import chain_verify
from ....kernels.gpu.lmhead_lse import lmhead_lse
from ....kernels.gpu.lmhead_sample import MOST_ROWS, lmhead_sample
from ....kernels.gpu.sample_rows import sample_rows
from ....kernels.gpu.tree_walk import tree_walk
from ....kernels.noise import Purpose
from .head_operands import SPREAD, chains, filters, keys_for, temperatures, trees
from .rows import Goal, Row, rated, timed
from .setting import Setting

SECTION = "head"
_TREE_NODES = 16


def rows(setting: Setting) -> Iterator[Row]:
    """At decode sizes, and for the scores at those of a prefill."""
    sizes = setting.sizes
    for count, most_us in ((sizes.decode, 60), (sizes.many, 120)):
        yield from _draws(setting, count, Goal(most_us) if sizes.full else None)
    weight = setting.normal(sizes.shape.vocabulary, sizes.shape.hidden, deviation=sizes.shape.hidden**-0.5)
    for count in sorted({1, min(16, sizes.decode), min(MOST_ROWS, sizes.decode)}):
        yield from _fused(setting, weight, count)
    yield from _scores(setting, weight)
    yield from _speculation(setting)


def _draws(setting: Setting, count: int, goal: Goal | None) -> Iterator[Row]:
    """Whole rows and a nucleus of fp32 logits, as the head writes them, beside torch's sort and race."""
    shape, machine = setting.sizes.shape, setting.machine
    logits = setting.normal(count, shape.vocabulary, dtype=torch.float32, deviation=SPREAD)
    keys = keys_for(setting, count, Purpose.TOKEN)
    degrees = torch.full((count,), 0.8, device=setting.device)
    nucleus, out = filters(setting, count), Drawn.empty(count, setting.device)
    told = f"[{count}, {shape.vocabulary}] float32"
    whole = setting.timer.seconds(lambda: sample_rows(logits, degrees, keys, out=out))
    once = bounds.sample_rows(shape, count).seconds(machine)
    yield timed(SECTION, "sample_rows, whole rows", whole, once, shape=told, goal=goal)
    narrowed = setting.timer.seconds(lambda: sample_rows(logits, degrees, keys, nucleus, out=out))
    twice = bounds.sample_rows(shape, count, sweeps=2).seconds(machine)
    yield timed(SECTION, "sample_rows, top-p 0.95", narrowed, twice, shape=told, goal=goal)
    sorting = setting.timer.seconds(lambda: sorted_draw(logits, degrees, 0.95))
    yield timed(SECTION, "torch, top-p 0.95", sorting, twice, shape=told)
    gain = Goal(5, at_least=True) if setting.sizes.full else None
    yield rated(SECTION, "sample_rows: gain over torch", "x", sorting / narrowed, shape=told, goal=gain)


def sorted_draw(logits: Tensor, temperature: Tensor, top_p: float) -> Tensor:
    """A nucleus draw by a sort, as it is commonly written."""
    weights, order = (logits / temperature[:, None]).softmax(-1).sort(-1, descending=True)
    weights = weights.masked_fill(weights.cumsum(-1) - weights > top_p, 0.0)
    noise = torch.empty_like(weights).exponential_()
    return order.gather(-1, (weights / noise).argmax(-1, keepdim=True))


def _fused(setting: Setting, weight: Tensor, count: int) -> Iterator[Row]:
    """The head with the draw in it, beside the library's product with our draw behind it."""
    shape = setting.sizes.shape
    hidden = setting.normal(count, shape.hidden)
    keys, degrees = keys_for(setting, count, Purpose.TOKEN), temperatures(setting, count)
    out = Drawn.empty(count, setting.device)
    told = f"[{count}, {shape.hidden}] x [{shape.vocabulary}]"
    fused = setting.timer.seconds(lambda: lmhead_sample(hidden, weight, degrees, keys, out=out))
    bound = bounds.lmhead_sample(shape, count).seconds(setting.machine)
    full = setting.sizes.full
    yield timed(SECTION, "lmhead_sample", fused, bound, shape=told, goal=Goal(300) if full else None)

    def apart() -> object:
        logits = torch.nn.functional.linear(hidden, weight).float()
        return sample_rows(logits, degrees, keys, out=out)

    gain = setting.timer.seconds(apart) / fused
    goal = Goal(1.2, at_least=True) if full else None
    yield rated(SECTION, "lmhead_sample: gain over two steps", "x", gain, shape=told, goal=goal)


def _scores(setting: Setting, weight: Tensor) -> Iterator[Row]:
    shape, count = setting.sizes.shape, setting.sizes.scored
    hidden, targets = setting.normal(count, shape.hidden), setting.integers(shape.vocabulary, count)
    out = Scored.empty(count, setting.device)
    seconds = setting.timer.seconds(lambda: lmhead_lse(hidden, weight, targets, out=out))
    bound = bounds.lmhead_lse(shape, count).seconds(setting.machine)
    goal = Goal(0.6, at_least=True, of_bound=True) if setting.sizes.full else None
    told = f"[{count}, {shape.hidden}] x [{shape.vocabulary}]"
    yield timed(SECTION, "lmhead_lse", seconds, bound, shape=told, goal=goal)


def _speculation(setting: Setting) -> Iterator[Row]:
    shape, batch, drafts = setting.sizes.shape, setting.sizes.decode, setting.sizes.drafts
    full = setting.sizes.full
    forest = trees(setting, batch, _TREE_NODES)
    bound = bounds.tree_walk(batch, _TREE_NODES, forest.depth).seconds(setting.machine)
    seconds = setting.timer.seconds(lambda: tree_walk(*forest))
    told = f"{batch} trees of {_TREE_NODES}"
    goal = Goal(5) if full else None
    yield timed(SECTION, "tree_walk", seconds, bound, shape=told, goal=goal)
    given = chains(setting, shape, batch, drafts)
    bound = bounds.chain_verify(shape, batch).seconds(setting.machine)
    goal = Goal(40) if full else None
    seconds = setting.timer.seconds(lambda: chain_verify(*given))
    told = f"{batch} chains of {drafts}, vocabulary {shape.vocabulary}"
    yield timed(SECTION, "chain_verify", seconds, bound, shape=told, goal=goal)
