"""A run's records as logs of inspect_ai: one `.eval` file per strategy and budget, for `inspect view`.

Seeds become epochs. What inspect_ai has no field for is in the metadata of log, sample, score and transcript.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai.event import Event, InfoEvent, ModelEvent, ScoreEvent, SpanBeginEvent, SpanEndEvent  # pyright: ignore[reportMissingImports]
from inspect_ai.log import (  # pyright: ignore[reportMissingImports]
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalPlan,
    EvalPlanStep,
    EvalSample,
    EvalSpec,
    EvalStats,
    recompute_metrics,
    write_eval_log,
)
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import CORRECT, INCORRECT, NOANSWER, Score  # pyright: ignore[reportMissingImports]

from ...engine.errors import UsageError
from ...reasoning.solution import Reason
from ..runs.plan import Cell
from ..runs.recipe import Recipe
from ..runs.record import GradedCandidate, Record, branch_texts
from ..runs.store import Store
from ..suites.base import Sample
from .inspect_usage import usage_of

SCORER = "grade"
METRICS = [{"name": "inspect_ai/accuracy"}, {"name": "inspect_ai/stderr"}]


def write_logs(store: Store, folder: Path) -> list[Path]:
    """Write a log for each strategy and budget of a run that has records; returns the files.

    Raises `UsageError` where there is no record, or a file stands there already.
    """
    by_cell: dict[Cell, list[Record]] = {cell: [] for cell in store.cells}
    for record in store.records():
        if record.cell in by_cell:
            by_cell[record.cell].append(record)
    found = {cell: records for cell, records in by_cell.items() if records}
    if not found:
        raise UsageError(f"{store.folder}: has no record yet; export it when samples are finished")
    paths = _paths(store, found, folder)
    for path in paths.values():
        if path.exists():
            raise UsageError(f"{path}: is there already; give another --out")
    folder.mkdir(parents=True, exist_ok=True)
    for cell, path in paths.items():
        write_eval_log(make_log(store, cell, found[cell]), path, format="eval")
    return list(paths.values())


def make_log(store: Store, cell: Cell, records: Sequence[Record]) -> EvalLog:
    """The log of one strategy and budget, metrics computed by inspect_ai."""
    recipe, planned = store.recipe, {sample.id: sample for sample in store.samples()}
    launches = store.launches()
    started = launches[0]["started"] if launches else datetime.now(UTC).isoformat(timespec="seconds")
    complete = len(records) == len(planned) * recipe.seeds
    samples = [
        _sample(record, planned[record.sample], recipe.model, recipe.seed, store.graph(record.key), started)
        for record in records
    ]
    usage = _total(sample.model_usage.get(recipe.model) for sample in samples)
    spec = EvalSpec.model_validate(
        {
            "created": started,
            "task": recipe.suite,
            "task_id": f"{recipe.suite} {cell}",
            "task_display_name": f"{recipe.suite}: {cell}",
            "task_args": _arguments(recipe, cell),
            "solver": cell.strategy,
            "solver_args": {"budget": cell.budget},
            "dataset": EvalDataset(name=recipe.suite, samples=len(planned), sample_ids=list(planned)),
            "model": recipe.model,
            "config": EvalConfig(epochs=recipe.seeds, epochs_reducer=["mean"], token_limit=cell.tokens),
            "packages": {"branchwise": version("branchwise")},
            "metadata": {
                "strategy": cell.strategy,
                "budget": cell.budget,
                "first_seed": recipe.seed,
                "recipe": msgspec.to_builtins(recipe),
                "launches": launches,
            },
            "scorers": [{"name": SCORER, "metrics": METRICS}],
            # As Markdown the viewer would show 7*6*1 as 761.
            "viewer": {"trust_content": False},
        }
    )
    step = EvalPlanStep(solver=cell.strategy, params={"budget": cell.budget})
    log = EvalLog(
        # inspect_ai calls a log that was broken off "cancelled": its viewer then says how much is there.
        status="success" if complete else "cancelled",
        eval=spec,
        plan=EvalPlan(name="branchwise", steps=[step]),
        stats=EvalStats(
            started_at=started,
            completed_at=_completed(started, records),
            model_usage={} if usage is None else {recipe.model: usage},
        ),
        samples=samples,
    )
    recompute_metrics(log)
    assert log.results is not None
    log.results.total_samples = len(planned) * recipe.seeds
    log.results.completed_samples = sum(sample.error is None for sample in samples)
    return log


def _arguments(recipe: Recipe, cell: Cell) -> dict[str, Any]:
    """What was run, the strategy first, without what was left at its default: `inspect view` lists the logs
    of a folder by these."""
    given = msgspec.to_builtins(recipe)
    unsaid = msgspec.to_builtins(Recipe(suite=recipe.suite, strategies=recipe.strategies))
    own = {"strategy": cell.strategy, "budget": cell.budget}
    return own | {name: value for name, value in given.items() if name != "budgets" and value != unsaid[name]}


def _completed(started: str, records: Sequence[Record]) -> str:
    """The start plus the seconds of all samples, "" where none is known. The strategies of a run share one
    engine side by side: when one of them was done is not known."""
    seconds = [s for record in records if (s := record.usage.engine.get("seconds")) is not None]
    if not seconds:
        return ""
    return (datetime.fromisoformat(started) + timedelta(seconds=sum(seconds))).isoformat()


def _sample(
    record: Record, sample: Sample, model: str, first_seed: int, graph: bytes | None, started: str
) -> EvalSample:
    usage = usage_of(record.usage)
    seconds = record.usage.engine.get("seconds")
    asked: list[ChatMessage] = [ChatMessageUser(content=sample.problem)]
    output = ModelOutput.from_content(model, record.text, _stop_reason(record))
    output.usage, output.time = usage, seconds
    score = Score(
        value=_value(record.correct, record.answer),
        answer=record.answer,
        explanation=record.grade_reason or None,
        metadata={"verifier_score": record.score, "verified": record.verified},
    )
    return EvalSample(
        id=sample.id,
        epoch=record.seed - first_seed + 1,
        input=sample.problem,
        target=sample.gold.value,
        messages=[*asked, output.message],
        output=output,
        scores={SCORER: score},
        metadata={
            "strategy": record.strategy,
            "budget": record.budget,
            "seed": record.seed,
            "reason": record.reason,
            "censored": record.censored,
            "level": record.level,
            "gold_type": str(sample.gold.type),
            "usage": msgspec.to_builtins(record.usage),
            "notes": list(record.notes),
            **sample.meta,
        },
        events=list(_transcript(record, asked, model, graph, started)),
        model_usage={} if usage is None else {model: usage},
        total_time=seconds,
        error=None if record.error is None else _error(record.error),
    )


def _transcript(
    record: Record, asked: list[ChatMessage], model: str, graph: bytes | None, started: str
) -> Iterator[Event]:
    """One span per candidate, with its text and its own grade, then the final grade and the search graph."""
    node_link = None if graph is None else json.loads(graph)
    texts = {} if node_link is None else branch_texts(node_link)
    # The records keep no times of events: all have that of the run, and their order says what came first.
    when = {"timestamp": datetime.fromisoformat(started), "working_start": 0.0}
    for candidate in record.candidates:
        span = f"candidate-{candidate.id}"
        yield SpanBeginEvent(id=span, name=f"candidate {candidate.id}", type="solver", span_id=span, **when)
        output = ModelOutput.from_content(model, texts.get(candidate.id, ""), _candidate_stop(candidate))
        if candidate.tokens is not None:
            output.usage = ModelUsage(output_tokens=candidate.tokens, total_tokens=candidate.tokens)
        yield ModelEvent(
            model=model,
            input=asked,
            tools=[],
            tool_choice="none",
            config=GenerateConfig(seed=record.seed),
            output=output,
            metadata=msgspec.to_builtins(candidate),
            span_id=span,
            **when,
        )
        yield ScoreEvent(
            score=Score(
                value=_value(candidate.correct, candidate.answer),
                answer=candidate.answer,
                metadata={"verifier_score": candidate.score, "verified": candidate.verified},
            ),
            intermediate=True,
            span_id=span,
            **when,
        )
        yield SpanEndEvent(id=span, span_id=span, **when)
    if node_link is not None:
        yield InfoEvent(source="branchwise search graph", data=node_link, **when)


def _value(correct: bool | None, answer: str | None) -> str | float:
    """inspect_ai's letters; not a number where the grader cannot tell, which its metrics leave out."""
    if correct is None:
        return float("nan")
    if answer is None:
        return NOANSWER
    return CORRECT if correct else INCORRECT


def _stop_reason(record: Record) -> Any:
    return "max_tokens" if record.reason in (Reason.BUDGET, Reason.DEADLINE) else "stop"


def _candidate_stop(candidate: GradedCandidate) -> Any:
    return "stop" if candidate.complete else "max_tokens"


def _error(message: str) -> EvalError:
    return EvalError(message=message, traceback="", traceback_ansi="")


def _total(usages: Iterable[ModelUsage | None]) -> ModelUsage | None:
    known = [usage for usage in usages if usage is not None]
    return sum(known[1:], known[0]) if known else None


def _paths(store: Store, cells: Iterable[Cell], folder: Path) -> dict[Cell, Path]:
    """A file for each cell, named by suite, strategy and budget."""
    paths: dict[Cell, Path] = {}
    for cell in cells:
        name = re.sub(r"[^\w.=-]+", "-", f"{store.recipe.suite}_{cell.strategy}_{cell.budget}").strip("-")
        path = folder / f"{name}.eval"
        if path in paths.values():
            path = folder / f"{name}_{len(paths)}.eval"
        paths[cell] = path
    return paths
