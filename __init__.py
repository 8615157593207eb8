"""branchwise: search strategies that own a KV-sharing engine under one hard budget.

Names are imported when they are first used, so that `import branchwise` does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.errors import BranchwiseError, UsageError
    from .engine.sampling.params import SamplingParams
    from .engine.text.stop import Stop, Until
    from .reasoning.budget import Budget
    from .reasoning.events import Event
    from .reasoning.graph import SearchGraph
    from .reasoning.reasoner import Reasoner, solve
    from .reasoning.solution import Reason, Solution, Usage
    from .strategies.base import Branch, Needs, Search, Select, Step, Strategy
    from .strategies.best_of_n import BestOfN
    from .strategies.greedy import Greedy
    from .verifiers.base import Candidate, Score, Verifier
    from .verifiers.problem import Problem, Task

_HOME = {
    "BestOfN": ".strategies.best_of_n",
    "Branch": ".strategies.base",
    "BranchwiseError": ".engine.errors",
    "Budget": ".reasoning.budget",
    "Candidate": ".verifiers.base",
    "Event": ".reasoning.events",
    "Greedy": ".strategies.greedy",
    "Needs": ".strategies.base",
    "Problem": ".verifiers.problem",
    "Reason": ".reasoning.solution",
    "Reasoner": ".reasoning.reasoner",
    "SamplingParams": ".engine.sampling.params",
    "Score": ".verifiers.base",
    "Search": ".strategies.base",
    "SearchGraph": ".reasoning.graph",
    "Select": ".strategies.base",
    "Solution": ".reasoning.solution",
    "Step": ".strategies.base",
    "Stop": ".engine.text.stop",
    "Strategy": ".strategies.base",
    "Task": ".verifiers.problem",
    "Until": ".engine.text.stop",
    "Usage": ".reasoning.solution",
    "UsageError": ".engine.errors",
    "Verifier": ".verifiers.base",
    "solve": ".reasoning.reasoner",
}

__all__ = [
    "BestOfN",
    "Branch",
    "BranchwiseError",
    "Budget",
    "Candidate",
    "Event",
    "Greedy",
    "Needs",
    "Problem",
    "Reason",
    "Reasoner",
    "SamplingParams",
    "Score",
    "Search",
    "SearchGraph",
    "Select",
    "Solution",
    "Step",
    "Stop",
    "Strategy",
    "Task",
    "Until",
    "Usage",
    "UsageError",
    "Verifier",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
