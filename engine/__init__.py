"""The engine floor: sequences on paged KV, shared by reference, under a scheduler that enforces the budget.

Names are imported when first used; none of them brings torch before a model is opened.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine, EngineModel
    from .protocol import Backend, EngineUsage, ExtendParams, Extension, Meter, ScoreParams, Scores, SeqId
    from .sampling.params import GREEDY, SamplingParams
    from .text.stop import Stop, StopRule, Until

_HOMES = {
    "Engine": "engine",
    "EngineModel": "engine",
    "Backend": "protocol",
    "EngineUsage": "protocol",
    "ExtendParams": "protocol",
    "Extension": "protocol",
    "Meter": "protocol",
    "ScoreParams": "protocol",
    "Scores": "protocol",
    "SeqId": "protocol",
    "GREEDY": "sampling.params",
    "SamplingParams": "sampling.params",
    "Stop": "text.stop",
    "StopRule": "text.stop",
    "Until": "text.stop",
}

__all__ = [
    "GREEDY",
    "Backend",
    "Engine",
    "EngineModel",
    "EngineUsage",
    "ExtendParams",
    "Extension",
    "Meter",
    "SamplingParams",
    "ScoreParams",
    "Scores",
    "SeqId",
    "Stop",
    "StopRule",
    "Until",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
