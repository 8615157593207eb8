"""The ratio test of speculative sampling (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv
2302.01318), and the draws of the draft model that it tests.

Coins, residual samples and drafts have noise of their own, each a pure function of (seed, position), so a
drawn token is reproducible; that it follows the target's distribution holds for any draft. One row at a time:
its bits do not depend on what else is drawn.
"""

import torch
from torch import Tensor

from ...kernels.noise import Purpose, exponential, row_keys, uniform
from .drafting import Distribution, Drafted
from .target import Draw
from .transforms import distribution, is_greedy


def speculative_draw(logits: Tensor, draw: Draw, vocab: Tensor) -> tuple[int, Drafted | None]:
    """The token of a draw with a proposal to test, or of a draft model's draw, from its target `logits` fp32
    [vocab]; `vocab` holds all ids, int32."""
    p = distribution(logits, draw.params)
    if draw.proposal is not None:
        return ratio_test(p, draw, vocab), None
    assert draw.drafting is not None
    purpose = Purpose.DRAFT if draw.drafting.own_noise else Purpose.TOKEN
    greedy = is_greedy(draw.params)
    # All others of a greedy row have probability 0: its runners-up are those of the logits.
    scores = logits if greedy else _raced(p, draw, purpose, vocab)
    token = int(scores.argmax())
    best = torch.topk(scores, 1 + draw.drafting.runners_up).indices.tolist()
    runners_up = [one for one in best if one != token][: draw.drafting.runners_up]
    return token, Drafted(p if draw.drafting.own_noise and not greedy else None, runners_up)


def ratio_test(p: Tensor, draw: Draw, vocab: Tensor) -> int:
    """The proposed token x with probability min(1, p(x) / q(x)), else one from norm(max(0, p - q)), which
    never is x (Leviathan et al. 2023, algorithm 1)."""
    assert draw.proposal is not None
    x, q = draw.proposal
    drafted = _point_mass(x, p) if q is None else _tensor(q).to(p.device)
    coin = uniform(_keys(draw, Purpose.ACCEPT, p.device), vocab[:1])[0, 0]
    if bool(coin * drafted[x] < p[x]):
        return x
    residual = (p - drafted).clamp_(min=0.0)
    if not bool(residual.any()):  # p is q but for rounding
        residual = p
    return int(_raced(residual, draw, Purpose.RESIDUAL, vocab).argmax())


def _raced(weights: Tensor, draw: Draw, purpose: Purpose, vocab: Tensor) -> Tensor:
    """The largest of these is a draw in proportion to `weights` [vocab]."""
    return weights / exponential(_keys(draw, purpose, weights.device), vocab)[0]


def _keys(draw: Draw, purpose: Purpose, device: torch.device) -> Tensor:
    return row_keys([draw.seed], [draw.position], purpose).to(device)


def _point_mass(token: int, like: Tensor) -> Tensor:
    mass = torch.zeros_like(like)
    mass[token] = 1.0
    return mass


def _tensor(q: Distribution) -> Tensor:
    assert isinstance(q, Tensor)
    return q
