"""branchwise: search strategies that own a KV-sharing engine under one hard budget.

Names are imported when they are first used, so that `import branchwise` does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.errors import BranchwiseError, UsageError
    from .engine.sampling.params import SamplingParams
    from .engine.text.stop import Stop, Until
    from .engine.text.tokenizer import Message
    from .reasoning.budget import Budget
    from .reasoning.conversation import Conversation
    from .reasoning.events import (
        BranchOpened,
        Cut,
        Ended,
        Event,
        Noted,
        Offered,
        Pruned,
        Scored,
        StepDone,
        ToolCalled,
        Wrote,
    )
    from .reasoning.graph import SearchGraph
    from .reasoning.opened import OpenEngine, open_engine
    from .reasoning.reasoner import Reasoner, solve
    from .reasoning.shared import SharedBudget
    from .reasoning.solution import Reason, Solution, Usage
    from .reasoning.stream import SolveStream
    from .reasoning.tools.calculator import CALCULATOR
    from .reasoning.tools.python import python_tool
    from .reasoning.tools.tool import Tool
    from .strategies.base import Branch, Needs, Search, Select, Step, Strategy
    from .strategies.best_of_n import BestOfN
    from .strategies.greedy import Greedy
    from .verifiers.base import Candidate, Score, Verifier
    from .verifiers.problem import Problem, Task

_HOME = {
    "CALCULATOR": ".reasoning.tools.calculator",
    "BestOfN": ".strategies.best_of_n",
    "Branch": ".strategies.base",
    "BranchOpened": ".reasoning.events",
    "BranchwiseError": ".engine.errors",
    "Budget": ".reasoning.budget",
    "Candidate": ".verifiers.base",
    "Conversation": ".reasoning.conversation",
    "Cut": ".reasoning.events",
    "Ended": ".reasoning.events",
    "Event": ".reasoning.events",
    "Greedy": ".strategies.greedy",
    "Message": ".engine.text.tokenizer",
    "Needs": ".strategies.base",
    "Noted": ".reasoning.events",
    "Offered": ".reasoning.events",
    "OpenEngine": ".reasoning.opened",
    "Problem": ".verifiers.problem",
    "Pruned": ".reasoning.events",
    "Reason": ".reasoning.solution",
    "Reasoner": ".reasoning.reasoner",
    "SamplingParams": ".engine.sampling.params",
    "Score": ".verifiers.base",
    "Scored": ".reasoning.events",
    "Search": ".strategies.base",
    "SearchGraph": ".reasoning.graph",
    "Select": ".strategies.base",
    "SharedBudget": ".reasoning.shared",
    "Solution": ".reasoning.solution",
    "SolveStream": ".reasoning.stream",
    "Step": ".strategies.base",
    "StepDone": ".reasoning.events",
    "Stop": ".engine.text.stop",
    "Strategy": ".strategies.base",
    "Task": ".verifiers.problem",
    "Tool": ".reasoning.tools.tool",
    "ToolCalled": ".reasoning.events",
    "Until": ".engine.text.stop",
    "Usage": ".reasoning.solution",
    "UsageError": ".engine.errors",
    "Verifier": ".verifiers.base",
    "Wrote": ".reasoning.events",
    "open_engine": ".reasoning.opened",
    "python_tool": ".reasoning.tools.python",
    "solve": ".reasoning.reasoner",
}

__all__ = [
    "CALCULATOR",
    "BestOfN",
    "Branch",
    "BranchOpened",
    "BranchwiseError",
    "Budget",
    "Candidate",
    "Conversation",
    "Cut",
    "Ended",
    "Event",
    "Greedy",
    "Message",
    "Needs",
    "Noted",
    "Offered",
    "OpenEngine",
    "Problem",
    "Pruned",
    "Reason",
    "Reasoner",
    "SamplingParams",
    "Score",
    "Scored",
    "Search",
    "SearchGraph",
    "Select",
    "SharedBudget",
    "Solution",
    "SolveStream",
    "Step",
    "StepDone",
    "Stop",
    "Strategy",
    "Task",
    "Tool",
    "ToolCalled",
    "Until",
    "Usage",
    "UsageError",
    "Verifier",
    "Wrote",
    "open_engine",
    "python_tool",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
