"""The benchmark measures what it says: whole workloads, prompts that fit, one report."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from branchwise.engine.errors import ModelLoadError, UsageError
from branchwise.evals.bench import peer_choice
from branchwise.evals.bench.arena import run_bench
from branchwise.evals.bench.best_of_n import BestOfN
from branchwise.evals.bench.peer_choice import PeerChoice
from branchwise.evals.bench.setting import Setting
from branchwise.reasoning.cli.main import run

SMALL = BestOfN(samples=3, prompt=20, new=4)


def setting(model: object, work: Path, **options: object) -> Setting:
    return Setting(model=str(model), threads=1, repeats=1, work=work, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_both_run_the_whole_workload(folder: Path, tmp_path: Path) -> None:
    peers = (PeerChoice("transformers", Path(sys.executable)),)
    result = run_bench(setting(folder, tmp_path, peers=peers), SMALL.measure)
    assert result.work.sizes == {"samples": 3, "prompt": 20, "new": 4}
    (peer,) = result.peers
    assert peer.version.startswith("transformers 5")
    assert peer.ratio == pytest.approx(result.ours.figures["tokens_per_s"] / peer.figures["tokens_per_s"])
    assert result.ours.figures["tokens_per_s"] == pytest.approx(12 / result.ours.figures["seconds"])
    assert result.bound_tokens_per_s is not None
    assert result.bound_tokens_per_s > 0


def test_the_prompt_is_shortened_to_the_context(folder: Path, tmp_path: Path) -> None:
    workload = BestOfN(samples=2, new=250)
    result = run_bench(setting(folder, tmp_path, dtype="bfloat16"), workload.measure)
    assert result.work.sizes["prompt"] == 6
    assert result.peers == []
    with pytest.raises(UsageError, match="--new 256 leaves no room for a prompt in 256 positions"):
        BestOfN(new=256).fitting(256)


def test_the_deterministic_mode_is_a_contender_whose_ratio_is_its_cost(folder: Path, tmp_path: Path) -> None:
    result = run_bench(setting(folder, tmp_path, deterministic=True), SMALL.measure)
    assert not result.work.deterministic
    assert [(peer.name, peer.ratio is not None) for peer in result.peers] == [
        ("branchwise (deterministic)", True)
    ]


def test_the_command_prints_one_json_object_with_its_figures_on_top(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--n", "2", "--prompt", "9", "--new", "3", "--repeats", "1", "--threads", "1"]
    rows = ["--json", "--save", str(tmp_path)]
    assert run(["bench", "best-of-n", "--model", str(folder), *sizes, *rows]) == 0
    printed = json.loads(capsys.readouterr().out)
    (result,) = printed["results"]
    assert printed["tokens_per_s"] == result["ours"]["figures"]["tokens_per_s"] > 0
    assert result["work"]["sizes"] == {"samples": 2, "prompt": 9, "new": 3}
    (row,) = [json.loads(line) for line in (tmp_path / "best-of-n.jsonl").read_text().splitlines()]
    assert row["result"] == result
    assert row["machine"]["cores"] >= 1
    assert row["machine"]["versions"]["torch"]


def test_several_settings_are_several_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--n", "2", "--prompt", "9", "--new", "3", "--repeats", "1", "--threads", "1"]
    both = ["--dtype", "float32", "--dtype", "bfloat16"]
    assert run(["bench", "best-of-n", "--model", str(folder), *both, *sizes, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [result["work"]["dtype"] for result in printed["results"]] == ["float32", "bfloat16"]
    assert "tokens_per_s" not in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--peer", "sglang=python"], "--peer sglang=python: no such peer; known are openvino, llama.cpp, v"),
        (["--peer", "vllm"], "--peer vllm: say which interpreter has it, as --peer vllm=VENV/bin/python"),
        (["--peer", "vllm=/absent/python"], "/absent/python is no program that can run"),
        (["--peer", "vllm="], "nothing is no program that can run"),
        (["--peer", "transformers", "--peer", f"transformers={sys.executable}"], "give each peer once"),
        (["--dtype", "int4"], "--dtype int4: no such type; give float32 or bfloat16"),
    ],
)
def test_wrong_options_are_refused_in_one_line_before_anything_loads(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "best-of-n", "--model", "./absent", *options]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such folder or file"):
        run_bench(setting("./absent", tmp_path), SMALL.measure)


def test_a_peer_that_dies_ends_the_benchmark_in_one_line(
    folder: Path,
    tmp_path: Path,
    fake: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(peer_choice.ADAPTERS, "vllm", str(fake(on_run="os._exit(3)")))
    peer = ["--peer", f"vllm={sys.executable}", "--work", str(tmp_path)]
    assert run(["bench", "best-of-n", "--model", str(folder), "--n", "2", "--new", "2", *peer]) == 3
    printed = capsys.readouterr()
    assert "peer vllm ended early: exit status 3" in printed.err
    assert printed.err.count("\n") == 1
