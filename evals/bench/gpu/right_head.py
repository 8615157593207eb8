"""Whether draws, scores and the verification of drafts are right."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ....kernels.bounds import Shape
from ....kernels.drawn import GREEDY_BELOW, Drawn, Filters
from ....kernels.gpu.chain_verify import chain_verify
from ....kernels.gpu.lmhead_lse import lmhead_lse
from ....kernels.gpu.lmhead_sample import MOST_ROWS, lmhead_sample
from ....kernels.gpu.sample_rows import sample_rows
from ....kernels.gpu.tree_walk import tree_walk
from ....kernels.noise import Purpose, exponential
from ....kernels.plain import lmhead as plain_head
from ....kernels.plain import sampling as plain
from ....kernels.plain import speculation as plain_speculation
from .head_operands import SPREAD, chains, filters, keys_for, mixed_filters, temperatures, trees
from .rows import Row, checked
from .setting import Setting

SECTION = "head is right"
REGRET = 2e-4
"""By how much, in logits over the temperature, a drawn token may lose against the best one: the noise of two
implementations differs in its last bits."""
STATISTICS = 2e-4
"""Relative to 1 or to the value, whichever is larger."""
ODD_ROWS = 1 / 32
"""Of chains, those whose last token may be another: close races again."""


def rows(setting: Setting) -> Iterator[Row]:
    """At the model's vocabulary, against torch on the same device."""
    for shape, dtype, kind in setting.kinds:
        yield from _draws(setting, shape, dtype, kind)
        yield from _fused(setting, shape, dtype, kind)
    yield from _speculation(setting, setting.sizes.shape)


def _draws(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    count = setting.sizes.decode
    keys, degrees = keys_for(setting, count, Purpose.TOKEN), temperatures(setting, count)
    logits = setting.normal(count, shape.vocabulary, dtype=torch.float32, deviation=SPREAD).to(dtype)
    told = f"{kind} [{count}, {shape.vocabulary}]"
    cases = {
        "whole rows": None,
        "top-p 0.95": filters(setting, count),
        "all filters": mixed_filters(setting, count),
    }
    for name, chosen in cases.items():
        found = sample_rows(logits, degrees, keys, chosen)
        expected = plain.sample_rows(logits, degrees, keys, chosen)
        lost = regret(logits.float(), degrees, keys, chosen, found.tokens)
        yield checked(SECTION, f"sample_rows, {name}: token", lost, REGRET, shape=told)
        error = statistics_error(found, expected)
        yield checked(SECTION, f"sample_rows, {name}: statistics", error, STATISTICS, shape=told)


def _fused(setting: Setting, shape: Shape, dtype: torch.dtype, kind: str) -> Iterator[Row]:
    weight = setting.normal(shape.vocabulary, shape.hidden, dtype=dtype, deviation=shape.hidden**-0.5)
    for count in sorted({1, min(17, setting.sizes.decode), min(MOST_ROWS, setting.sizes.decode)}):
        hidden = setting.normal(count, shape.hidden, dtype=dtype, deviation=SPREAD)
        keys, degrees = keys_for(setting, count, Purpose.TOKEN), temperatures(setting, count)
        found = lmhead_sample(hidden, weight, degrees, keys)
        logits = hidden.float() @ weight.float().T
        told = f"{kind} [{count}, {shape.hidden}] x [{shape.vocabulary}]"
        lost = regret(logits, degrees, keys, None, found.tokens)
        yield checked(SECTION, "lmhead_sample: token", lost, 10 * REGRET, shape=told)
        error = statistics_error(found, plain.sample_rows(logits, degrees, keys))
        yield checked(SECTION, "lmhead_sample: statistics", error, 10 * STATISTICS, shape=told)
    count = 2 * setting.sizes.decode + 1
    hidden = setting.normal(count, shape.hidden, dtype=dtype, deviation=SPREAD)
    targets = setting.integers(shape.vocabulary, count)
    scored, plainly = lmhead_lse(hidden, weight, targets), plain_head.lmhead_lse(hidden, weight, targets)
    error = max(_apart(scored.lse, plainly.lse), _apart(scored.logprobs, plainly.logprobs))
    told = f"{kind} [{count}, {shape.hidden}] x [{shape.vocabulary}]"
    yield checked(SECTION, "lmhead_lse", error, 10 * STATISTICS, shape=told)


def _speculation(setting: Setting, shape: Shape) -> Iterator[Row]:
    batch, drafts = setting.sizes.decode, setting.sizes.drafts
    given = chains(setting, shape, batch, drafts)
    for name, drafted in (("with the draft's rows", given.drafted), ("drafts without chance", None)):
        arguments = given.target, drafted, given.drafts, given.sizes, given.keys
        found, expected = chain_verify(*arguments), plain_speculation.chain_verify(*arguments)
        differs = (found.tokens != expected.tokens).any(-1) | (found.lengths != expected.lengths)
        told = f"{batch} chains of {drafts}, vocabulary {shape.vocabulary}"
        odd = differs.float().mean().item()
        yield checked(SECTION, f"chain_verify, {name}: chains that differ", odd, ODD_ROWS, shape=told)
    forest = trees(setting, batch, 16)
    walked = tree_walk(*forest)
    on_host = [one.cpu() for one in forest[:4]]
    expected_walk = plain_speculation.tree_walk(on_host[0], on_host[1], on_host[2], on_host[3], forest.depth)
    pairs = [(getattr(walked, name), getattr(expected_walk, name)) for name in ("nodes", "tokens", "lengths")]
    differs = max((found.cpu() != expected).float().mean().item() for found, expected in pairs)
    yield checked(SECTION, "tree_walk: entries that differ", differs, 0.0, shape=f"{batch} trees of 16")


def regret(
    logits: Tensor, temperature: Tensor, keys: Tensor, chosen: Filters | None, tokens: Tensor
) -> float:
    """By how much the drawn tokens lose their races at most; infinite for one that the filters exclude."""
    greedy = temperature < GREEDY_BELOW
    scores = (logits - logits.amax(-1, keepdim=True)) / torch.where(greedy, 1.0, temperature)[:, None]
    ids = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
    noise = exponential(keys, ids).double().log()
    value = scores.double() - torch.where(greedy[:, None], 0.0, noise)
    if chosen is not None:
        kept = plain.kept_tokens(scores, chosen) | greedy[:, None]
        value = value.masked_fill(~kept, float("-inf"))
    drawn = value.gather(-1, tokens.long()[:, None])[:, 0]
    lost = (value.amax(-1) - drawn).amax()
    return lost.item() if bool(lost.isfinite()) else float("inf")


def statistics_error(found: Drawn, expected: Drawn) -> float:
    """The largest difference of statistics; of log-probabilities where the tokens are the same."""
    same = found.tokens == expected.tokens
    pairs = [(found.logprobs[same], expected.logprobs[same])]
    pairs += [(getattr(found, name), getattr(expected, name)) for name in ("lse", "entropy", "certainty")]
    return max(_apart(*pair) for pair in pairs)


def _apart(found: Tensor, expected: Tensor) -> float:
    if not found.numel():
        return float("inf")
    difference = ((found - expected).abs() / expected.abs().clamp(min=1.0)).amax()
    return difference.item() if bool(difference.isfinite()) else float("inf")
