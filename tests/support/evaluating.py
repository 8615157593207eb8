"""Shared by the tests of runs: small recordings, runs in this process or their own, records to compare."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import msgspec
from branchwise.evals.runs.launch import launch
from branchwise.evals.runs.machine import Machine
from branchwise.evals.runs.recipe import Recipe, checked_recipe
from branchwise.evals.runs.store import Store
from branchwise.evals.summary.export import write_summary
from branchwise.evals.summary.summarise import summarise
from branchwise.evals.summary.tables import Summary

MAIN = "from branchwise.reasoning.cli.main import main; main()"


def write_chains(path: Path, problems: int = 20, samples: int = 16, seed: int = 0) -> Path:
    """A log of chains whose problems differ in difficulty, 30 to 60 tokens a sample."""
    rng = random.Random(seed)
    log, tokens = [], 0
    for index in range(problems):
        rate = rng.random()
        rewards = [int(rng.random() < rate) for _ in range(samples)]
        ys = [f"Steps of {index}.{i}\nAnswer: {'6*4' if r else i % 3} = 24" for i, r in enumerate(rewards)]
        tokens += rng.randint(30, 60) * samples
        log.append(
            {
                "idx": index,
                "ys": ys,
                "infos": [{"r": r} for r in rewards],
                "usage_so_far": {"completion_tokens": tokens, "prompt_tokens": 10 * (index + 1)},
            }
        )
    path.write_text(json.dumps(log))
    return path


def recipe(**fields: Any) -> Recipe:
    """A checked recipe, greedy on three Countdown problems unless told otherwise."""
    given = {"suite": "countdown", "strategies": ("greedy",), "budgets": ("tokens=256",), "limit": 3}
    return checked_recipe(Recipe(**{**given, **fields}))


def run(what: Recipe, folder: Path, *, parallel: int = 8, resume: bool = False, report: bool = False) -> int:
    """Launch in this process; without `report` only the tables are written, since charts take seconds."""

    async def go() -> int:
        return await launch(what, folder, Machine(parallel=parallel), resume=resume)

    if report:
        return anyio.run(go)
    with patch("branchwise.evals.runs.launch.write_report", _write_tables):
        return anyio.run(go)


def _write_tables(store: Store, folder: Path) -> tuple[Summary, list[Path]]:
    summary = summarise(store)
    return summary, write_summary(summary, folder)


def command(*arguments: str | Path) -> "subprocess.Popen[bytes]":
    """A command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def reproducible(folder: Path) -> list[dict[str, Any]]:
    """All records and graphs of a run, but for `usage.engine`."""
    plain = []
    with Store.read(folder) as store:
        for record in store.records():
            fields = msgspec.to_builtins(record)
            fields["usage"].pop("engine")
            fields["graph"] = json.loads(store.graph(record.key) or b"null")
            plain.append(fields)
    return plain
