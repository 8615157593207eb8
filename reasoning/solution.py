"""What a search returns."""

import enum
from typing import TYPE_CHECKING, Any

import msgspec

from ..engine.protocol import EngineUsage
from .tools.call import Call
from .written import NOTHING, Written

if TYPE_CHECKING:
    from .graph import SearchGraph


class Reason(enum.StrEnum):
    """Why the search ended: a sound pass, the strategy was done, a limit, a cancellation, or a failure."""

    SOLVED = "solved"
    EXHAUSTED = "exhausted"
    BUDGET = "budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Usage(msgspec.Struct, kw_only=True):
    """What was spent. All but `engine` is the same for one seed whatever else ran.

    `tokens` and `flops` are the ledger's (design section 3); `prompt_tokens`, `scored_tokens` are positions
    outside of `tokens`; `discarded_tokens` were paid for and are not part of the returned branch. `seconds`
    is in `engine`.
    """

    tokens: int = 0
    flops: int = 0
    prompt_tokens: int = 0
    scored_tokens: int = 0
    discarded_tokens: int = 0
    engine: dict[str, Any] = {}


class CandidateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One offered candidate. `tokens` is its length after the prompt; `stop` why its last step ended."""

    id: str
    answer: str | None
    score: float | None
    verified: bool | None
    tokens: int
    stop: str
    complete: bool
    mean_logprob: float | None = None


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """The incumbent at the end of a search, and what it cost.

    `answer` None is an abstention; the text is then that of the candidate which says most. `text` is the
    whole of it: `thinking`, the marker behind it, and the `conclusion`, which is without end ids. `written`
    are its tokens; `prompt` are those before it, where their log-probabilities were asked for. `calls` of
    tools without a function are what it ends with: their canonical form is then the answer, and `said` the
    part of the conclusion before them; else all of it.
    """

    answer: str | None
    text: str
    score: float | None
    verified: bool | None
    reason: Reason
    usage: Usage
    candidates: tuple[CandidateRecord, ...]
    graph: "SearchGraph"
    seed: int
    model: str
    strategy: dict[str, Any]
    notes: tuple[str, ...] = ()
    error: str | None = None
    thinking: str = ""
    conclusion: str = ""
    written: Written = NOTHING
    calls: tuple[Call, ...] = ()
    said: str = ""
    prompt: Written | None = None

    def as_json(self) -> dict[str, Any]:
        """The object that `solve --json` prints (design section 8)."""
        return {
            "answer": self.answer,
            "text": self.text,
            "score": self.score,
            "verified": self.verified,
            "reason": str(self.reason),
            "model": self.model,
            "strategy": self.strategy,
            "seed": self.seed,
            "usage": msgspec.to_builtins(self.usage),
            "candidates": [msgspec.to_builtins(c) for c in self.candidates],
            "notes": list(self.notes),
            "error": self.error,
        }


def engine_figures(usage: EngineUsage, *, seconds: float, kv_peak_tokens: int) -> dict[str, Any]:
    """`usage.engine`: the figures of what the engine did, which may depend on what else ran.

    `kv_peak_tokens` are the policy's positions owned at once, each counted once (`Budget.kv_tokens` caps it).
    `kv_held_peak_tokens` are positions in blocks of all models, copied tails counted again;
    `kv_unshared_peak_tokens` the same as if nothing were shared. A figure that the back end cannot know is
    None.
    """
    figures = msgspec.to_builtins(usage)
    figures |= dict.fromkeys(figures.pop("unknown"))
    figures["kv_held_peak_tokens"] = figures.pop("kv_peak_tokens")
    figures["kv_peak_tokens"] = kv_peak_tokens
    for now in ("kv_tokens", "kv_unshared_tokens"):  # what is held at this moment says nothing about the run
        del figures[now]
    return {"seconds": round(seconds, 4), **figures}
