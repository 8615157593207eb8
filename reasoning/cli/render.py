"""A solution as lines for people and as JSON for programs."""

from typing import Any

import msgspec

from ...engine.memory_plan import MemoryPlan
from ...strategies.base import Strategy
from ...strategies.grammar import format_strategy
from ...verifiers.calls import format_value
from ...verifiers.parameters import Parameter
from ..budget import Budget
from ..solution import Reason, Solution
from .quantity import format_budget

_REASONS = {
    Reason.SOLVED: "solved: a check that proves the answer passed",
    Reason.EXHAUSTED: "exhausted: the strategy was done",
    Reason.BUDGET: "budget: it was used up",
    Reason.DEADLINE: "deadline: the time was used up",
    Reason.CANCELLED: "cancelled: this is the best so far",
    Reason.FAILED: "failed",
}
_VERIFIED = {True: "yes", False: "no, a check refuted it", None: "not checked"}


def solution_lines(solution: Solution, budget: Budget) -> list[str]:
    """`name: value` lines; the continuation of a value is indented."""
    usage, engine = solution.usage, solution.usage.engine
    complete = sum(candidate.complete for candidate in solution.candidates)
    fields = [
        ("answer", "none was found" if solution.answer is None else solution.answer),
        ("verified", _VERIFIED[solution.verified]),
        ("score", "" if solution.score is None else f"{solution.score:.3f}"),
        ("ended", _REASONS[solution.reason]),
        ("tokens", f"{_share(usage.tokens, budget.tokens)}, {usage.discarded_tokens} on branches not chosen"),
        ("candidates", f"{len(solution.candidates)}, {complete} complete"),
        ("kv", _sharing(engine)),
        ("seconds", _figure(engine.get("seconds"))),
        ("seed", str(solution.seed)),
        *(("note", note) for note in solution.notes),
        ("text", solution.text.strip()),
    ]
    return [f"{name}: {_indented(value)}" for name, value in fields if value]


def solution_object(solution: Solution, budget: Budget) -> dict[str, Any]:
    """What `--json` prints: the solution, and the budget that it had."""
    limits = {name: value for name, value in msgspec.structs.asdict(budget).items() if value is not None}
    return {**solution.as_json(), "budget": limits}


def encode(value: Any) -> str:
    """One line of JSON."""
    return msgspec.json.encode(value).decode()


def parameter_line(parameter: Parameter) -> str:
    """One parameter with its default and what it takes, for a listing."""
    if parameter.required:
        return f"{parameter.name}: {parameter.expected}; it must be given"
    return f"{parameter.name}={format_value(parameter.default, _plain)}: {parameter.expected}"


def asking_lines(strategy: Strategy, budget: Budget) -> list[str]:
    """What will be run, before it is."""
    return [f"strategy: {format_strategy(strategy)}", f"budget: {format_budget(budget)}"]


def memory_line(plan: MemoryPlan) -> str:
    """How the opened models share the memory."""
    positions = ", ".join(f"{model.model} {model.positions:,}" for model in plan.models)
    weights, kv = (f"{size / 1e6:,.0f} MB" for size in (plan.weights_bytes, plan.kv_bytes))
    return f"memory: weights {weights}, KV up to {kv} ({positions} positions)"


def _plain(value: Any) -> str | None:
    """A nested strategy by its name and parameters; a text without quotes."""
    if isinstance(value, Strategy):
        return format_strategy(value)
    return value if isinstance(value, str) else None


def _share(spent: int, limit: int | None) -> str:
    return f"{spent}" if limit is None else f"{spent} of {limit}"


def _sharing(engine: dict[str, Any]) -> str:
    shared, unshared = engine.get("kv_peak_tokens"), engine.get("kv_unshared_peak_tokens")
    return f"{shared} positions at the peak, {unshared} if nothing were shared" if shared and unshared else ""


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _indented(value: str) -> str:
    return value.replace("\n", "\n  ")
