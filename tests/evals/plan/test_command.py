"""`branchwise plan`: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
from branchwise.evals.plan import measure
from branchwise.evals.plan.machine import Machine
from branchwise.evals.plan.measure import host_seconds
from branchwise.reasoning.cli.main import run

GPU = ["--gpu", "H200"]
SMALL = ["--budget", "tokens=512", "--prompt-tokens", "64"]


def test_the_plan_is_one_json_object(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--strategy", "best_of_n(n=8)", "--problems", "2", *SMALL, "--json"]
    assert run(["plan", "--model-config", str(config_file), *GPU, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["machine"] == "H200"
    assert printed["tokens"] == 1024
    assert printed["tokens_per_s"] == pytest.approx(printed["drawn"] / printed["seconds"])
    assert sum(printed["parts"].values()) == pytest.approx(printed["seconds"])
    assert printed["workload"]["strategy"] == "best_of_n(n=8)"
    assert printed["kv_bytes"] > 0


def test_a_budget_that_covers_nothing_takes_no_time(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--model-config", str(config_file), *GPU, "--budget", "flops=1"]) == 0
    assert "0 generated, 0 per second" in capsys.readouterr().out


def test_a_folder_names_its_config_and_a_scorer_gives_steps(
    config_file: Path, scorer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer = ["--prm-config", str(scorer_file), "--strategy", "beam(n=8, width=2)"]
    assert run(["plan", "--model-config", str(config_file.parent), *scorer, *GPU, *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["machine", "H200"]
    assert any(line.startswith("KV peak") and "positions" in line for line in lines)
    assert any(line.startswith("tokens") and "per second" in line for line in lines)


def test_a_machine_that_was_measured_is_saved_and_read_again(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Machine(name="here", bytes_per_s=1e10, flops_per_s=1e11, memory_bytes=1 << 33, dtype="float32")
    monkeypatch.setattr(measure, "measure_machine", lambda *_, **__: found)
    path = tmp_path / "here.json"
    common = ["plan", "--model-config", str(config_file), *SMALL, "--json"]
    assert run([*common, "--measure", "--memory", "8GiB", "--save-machine", str(path)]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert run([*common, "--machine", str(path)]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["memory"]["weights_bytes"] == measured["memory"]["weights_bytes"]
    assert read["tokens"] == measured["tokens"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no machine: give one of --gpu NAME, --machine FILE and --measure"),
        ([*GPU, "--measure"], "--gpu with --measure: give one of"),
        (["--gpu", "V100"], "--gpu V100: not in the table"),
        (["--machine", "/nowhere/box.json"], "--machine /nowhere/box.json: cannot be read"),
        ([*GPU, "--threads", "2"], "--threads without --measure"),
        ([*GPU, "--memory", "2GiB"], "--memory without --measure"),
        ([*GPU, "--dtype", "int4"], "--dtype int4: no such type; give bfloat16 or float32"),
        ([*GPU, "--budget", "tokens=x"], "budget tokens=x: not a whole number"),
        ([*GPU, "--strategy", "best_of_m"], "strategy 'best_of_m'"),
        ([*GPU, "--strategy", "beam"], "strategy beam needs the model 'prm': give --prm-config"),
        ([*GPU, "--problems", "0"], "--problems 0: give a whole number, 1 to 4096"),
        ([*GPU, "--prompt-tokens", "9000"], "prompt of 9000 tokens: the context"),
        ([*GPU, "--answer-tokens", "1"], "--answer-tokens 1: give a whole number, 2 to"),
        ([*GPU, "--agree", "1.5"], "--agree 1.5: give a number from 0 to 1"),
        ([*GPU, "--step", "words:3"], "step='words:3'"),
        ([*GPU, "--kv-memory", "1TB"], "of memory do not hold"),
        (
            [*GPU, "--save-machine", "/nowhere/box.json"],
            "--save-machine /nowhere/box.json: cannot be written",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    config_file: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--model-config", str(config_file), *options]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "holds no object"),
        ("{}", "architecture '' is not supported"),
        ('{"architectures": ["LlamaForCausalLM"]}', "lacks 'num_attention_heads'"),
        ('{"architectures": ["GPT2LMHeadModel"]}', "architecture 'GPT2LMHeadModel' is not supported"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_line(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    assert run(["plan", "--model-config", str(path), *GPU]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_models_must_have_the_head_of_their_role(
    config_file: Path, scorer_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--model-config", str(scorer_file), *GPU]) == 2
    assert "has a reward head; give another model" in capsys.readouterr().err
    assert run(["plan", "--model-config", str(config_file), "--prm-config", str(config_file), *GPU]) == 2
    assert "has no reward head; give another model" in capsys.readouterr().err


def test_the_engines_own_time_is_measured_around_a_model_that_takes_none() -> None:
    step_s, draw_s = host_seconds()
    assert 0 <= step_s < 1
    assert 0 <= draw_s < 0.1
    assert step_s + draw_s > 0
