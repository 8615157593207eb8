"""A plan for this machine against the engine on it."""

import json
import time
from collections.abc import Iterator

import pytest
import torch
from branchwise.evals.bench import planned
from branchwise.evals.plan.comparison import CASES, POLICY, Case, compare
from branchwise.evals.plan.machine import Machine
from branchwise.evals.plan.measure import measure_machine
from branchwise.evals.plan.plan import Workload
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.cli.main import run

CLOSE = 0.25


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """The processor's own time, not the wall's: other tests run beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield measure_machine(POLICY, dtype="float32", memory_bytes=1 << 33, clock=time.process_time)
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_is_near_the_run(case: Case, machine: Machine) -> None:
    found = compare(case, machine, clock=time.process_time)
    assert found.plan.tokens == found.run.tokens
    assert found.plan.kv_unshared_positions == pytest.approx(found.run.kv_unshared_positions, rel=0.1)
    assert found.ratio == pytest.approx(1, abs=CLOSE), f"{found.plan.seconds} s, {found.run.seconds} s"


def test_the_benchmark_prints_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that is made up, one short case."""
    made_up = Machine(
        name="made up", bytes_per_s=1e10, flops_per_s=1e11, memory_bytes=1 << 33, dtype="float32"
    )
    workload = Workload(strategy="best_of_n(n=2)", budget=Budget(tokens=6), prompt_tokens=8, max_tokens=3)
    monkeypatch.setattr(planned, "measure_machine", lambda *_, **__: made_up)
    monkeypatch.setattr(planned, "CASES", (Case(name="short", workload=workload),))
    assert run(["bench", "plan", "--repeats", "1", "--cpu-time", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens"] == 6
    assert printed["planned_per_second"] == pytest.approx(printed["planned_seconds"] / printed["seconds"])
    assert printed["planned_kv_unshared_peak_tokens"] > 0


def test_the_processors_time_is_counted_on_one_thread(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "plan", "--cpu-time", "--threads", "2"]) == 2
    assert "--cpu-time with --threads 2" in capsys.readouterr().err
