"""The benchmark measures what it says: whole workloads, prompts that fit, one report."""

import json
from pathlib import Path

import pytest
from branchwise.engine.errors import ModelLoadError, UsageError
from branchwise.evals.bench.best_of_n import Measured, Workload, fit, measure
from branchwise.evals.bench.report import render_json, render_line
from branchwise.reasoning.cli.main import run
from support.tiny import save_model

SMALL = Workload(samples=3, prompt_tokens=20, new_tokens=4, repeats=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, "Llama")
    return path


def test_both_run_the_whole_workload(folder: Path) -> None:
    result = measure(str(folder), "float32", SMALL, "transformers", threads=1)
    assert result.workload == SMALL
    assert result.tokens_per_s > 0
    assert result.peer_tokens_per_s is not None
    assert result.ratio == pytest.approx(result.tokens_per_s / result.peer_tokens_per_s)


def test_the_prompt_is_shortened_to_the_context(folder: Path) -> None:
    result = measure(str(folder), "bfloat16", Workload(samples=2, new_tokens=250, repeats=1), None, threads=1)
    assert result.workload.prompt_tokens == 6
    assert (result.peer, result.ratio) == (None, None)
    with pytest.raises(UsageError, match="--new 256 leaves no room for a prompt in 256 positions"):
        fit(Workload(new_tokens=256), 256)


def test_reports_name_everything_that_matters() -> None:
    plain = Measured(
        model="m", dtype="float32", deterministic=True, threads=1, workload=SMALL, tokens_per_s=100.4
    )
    line = render_line(plain)
    assert line == "m (float32, deterministic): best of 3, prompt 20, new 4, 1 thread(s): 100 tokens/s"
    fields = json.loads(render_json([plain]))["results"][0]
    assert fields["ratio"] is None
    assert fields["workload"]["samples"] == 3


def test_the_command_prints_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--model",
        str(folder),
        "--n",
        "2",
        "--prompt",
        "9",
        "--new",
        "3",
        "--repeats",
        "1",
        "--json",
    ]
    assert run(["bench", "best-of-n", *arguments]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["workload"] == {"samples": 2, "prompt_tokens": 9, "new_tokens": 3, "repeats": 1}


def test_wrong_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "best-of-n", "--peer", "vllm"]) == 2
    assert capsys.readouterr().err.strip().endswith("peer 'vllm' is not known; known is transformers")
    with pytest.raises(ModelLoadError, match="no such folder or file"):
        measure("./absent", "float32", SMALL, None, None)
