"""Each registered strategy, small enough to be run many times."""

from branchwise.strategies.ab_mcts import AbMcts
from branchwise.strategies.adaptive import Adaptive
from branchwise.strategies.adaptive_consistency import AdaptiveConsistency
from branchwise.strategies.aggregate import Aggregate
from branchwise.strategies.base import Strategy
from branchwise.strategies.beam import Beam
from branchwise.strategies.best_first import BestFirst
from branchwise.strategies.best_of_n import BestOfN
from branchwise.strategies.chain import Chain
from branchwise.strategies.deepconf import DeepConf
from branchwise.strategies.dvts import Dvts
from branchwise.strategies.dynamic_voting import DynamicVoting
from branchwise.strategies.esc import EarlyStoppingSelfConsistency
from branchwise.strategies.ets import Ets
from branchwise.strategies.greedy import Greedy
from branchwise.strategies.mcts import Mcts
from branchwise.strategies.portfolio import Portfolio
from branchwise.strategies.rebase import Rebase
from branchwise.strategies.refine import Refine
from branchwise.strategies.rsd import RewardGuidedSpeculation
from branchwise.strategies.self_consistency import SelfConsistency
from branchwise.strategies.short_m_at_k import ShortMAtK
from branchwise.strategies.spec_reason import SpecReason
from branchwise.strategies.speculative_rejection import SpeculativeRejection

SMALL: dict[str, Strategy] = {
    "ab_mcts": AbMcts(expansions=5, batch=2),
    "adaptive": Adaptive(probe=2, arm=BestOfN(n=4)),
    "adaptive_consistency": AdaptiveConsistency(n=6, wave=2),
    "aggregate": Aggregate(n=4, k=2, rounds=1),
    "beam": Beam(n=4, width=2),
    "best_first": BestFirst(width=2, expansions=4),
    "best_of_n": BestOfN(n=5),
    "chain": Chain(waits=1),
    "deepconf": DeepConf(n=6, warmup=2, window=4, chunk=3),
    "dvts": Dvts(n=4, width=2),
    "dynamic_voting": DynamicVoting(n=6, wave=2),
    "esc": EarlyStoppingSelfConsistency(window=2, n=6),
    "ets": Ets(width=4),
    "greedy": Greedy(),
    "mcts": Mcts(rollouts=5, width=2, parallel=2),
    "portfolio": Portfolio(members=(Greedy(), BestOfN(n=3))),
    "rebase": Rebase(width=4),
    "refine": Refine(rounds=2),
    "rsd": RewardGuidedSpeculation(),
    "self_consistency": SelfConsistency(n=5),
    "short_m_at_k": ShortMAtK(k=4, m=2),
    "spec_reason": SpecReason(accept=0.5),
    "speculative_rejection": SpeculativeRejection(n=4, round_tokens=8),
}
"""One of each name."""
