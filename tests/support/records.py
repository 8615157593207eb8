"""Runs whose records are made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from branchwise.evals.runs.plan import Task, make_plan
from branchwise.evals.runs.record import GradedCandidate, Record, Spent
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.registry import open_suite

from .evaluating import recipe

Outcome = Callable[[Task, int], Record | None]
"""(task, place of its problem) -> its record, or None where it is missing."""


def write_run(folder: Path, outcome: Outcome, graph: dict[str, Any] | None = None, **fields: Any) -> Path:
    """A run whose records are made by `outcome`, all with one graph; `fields` are the recipe's."""
    what = recipe(**{"strategies": ("greedy", "best_of_n(n=2)", "best_of_n(n=8)"), "limit": 20, **fields})
    plan = make_plan(what, open_suite("countdown").samples(what.limit, 0))
    place = {sample.id: index for index, sample in enumerate(plan.samples)}
    data = None if graph is None else msgspec.json.encode(graph)
    with Store.open(folder, plan, resume=False) as store:
        for task in plan.tasks():
            record = outcome(task, place[task.sample.id])
            if record is not None:
                store.add(record, data)
    return folder


def made_record(task: Task, *, correct: bool | None = True, **fields: Any) -> Record:
    """A record with known costs and one candidate that a reward model scored; `fields` replace its own."""
    engine = {
        "seconds": 0.5, "prefill_tokens": 10, "decode_tokens": 30, "draft_tokens": 0, "cached_tokens": 0,
        "kv_peak_tokens": 40, "kv_held_peak_tokens": 48, "kv_unshared_peak_tokens": 96,
    }  # fmt: skip
    usage = Spent(
        tokens=30, flops=1000, prompt_tokens=10, scored_tokens=12, discarded_tokens=0, engine=engine
    )
    answer = "1+2" if correct is not False else "2+1"
    return Record(
        **{
            "sample": task.sample.id, "strategy": task.cell.strategy, "budget": task.cell.budget,
            "seed": task.seed, "level": task.sample.level, "answer": answer, "correct": correct,
            "grade_reason": "", "reason": "exhausted", "censored": False, "score": 0.7, "verified": None,
            "text": answer, "usage": usage, "candidates": (made_candidate(correct=correct, score=0.7),),
            "verifiers": ("prm",),
            **fields,
        }
    )  # fmt: skip


def made_candidate(**fields: Any) -> GradedCandidate:
    return GradedCandidate(
        **{
            "id": "0.0", "answer": "1+2", "correct": True, "score": None, "verified": None, "tokens": 30,
            "stop": "eos", "complete": True, **fields,
        }
    )  # fmt: skip
