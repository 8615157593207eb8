"""Every workload does what its sizes say, on a tiny model, beside a peer that answers the protocol."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.bench import peer_choice
from branchwise.evals.bench.arena import run_bench
from branchwise.evals.bench.contender import Contender, interleave, medians
from branchwise.evals.bench.copying import LISTS, copy_prompts
from branchwise.evals.bench.kv import Kv
from branchwise.evals.bench.overhead import Overhead
from branchwise.evals.bench.peer_choice import PeerChoice
from branchwise.evals.bench.prefill import Prefill
from branchwise.evals.bench.score import Score
from branchwise.evals.bench.serve import Serve, latencies, quantile
from branchwise.evals.bench.setting import Setting
from branchwise.evals.bench.speculate import Speculation
from branchwise.evals.bench.table import BEGIN, END
from branchwise.evals.bench.tree import Tree
from branchwise.reasoning.cli.main import run


@pytest.fixture
def setting(folder: Path, tmp_path: Path) -> Setting:
    return Setting(model=str(folder), threads=1, repeats=1, work=tmp_path)


@pytest.fixture
def beside(setting: Setting, fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Setting:
    """The setting with a peer that generates sevens."""
    monkeypatch.setitem(peer_choice.ADAPTERS, "vllm", str(fake()))
    return Setting(
        model=setting.model,
        threads=1,
        repeats=1,
        work=setting.work,
        peers=(PeerChoice("vllm", Path(sys.executable)),),
    )


def test_serve_tells_throughput_and_latencies_of_both(beside: Setting) -> None:
    result = run_bench(beside, Serve(requests=5, prompt=24, new=16).measure)
    (peer,) = result.peers
    assert set(peer.figures) == set(result.ours.figures)
    for figures in (result.ours.figures, peer.figures):
        assert 0 < figures["ttft_p50_s"] <= figures["ttft_p95_s"] <= figures["seconds"]
        assert 0 <= figures["itl_p50_s"] <= figures["itl_p95_s"] <= figures["itl_p99_s"]
    assert peer.ratio == result.ours.figures["tokens_per_s"] / peer.figures["tokens_per_s"]


def test_serve_draws_the_same_lengths_and_other_tokens_for_each_run() -> None:
    first, second = (Serve(requests=20, prompt=64, new=32).draw(1000, number) for number in (0, 1))
    assert [(len(r.prompt), r.new) for r in first] == [(len(r.prompt), r.new) for r in second]
    assert all(8 <= len(r.prompt) <= 64 and 4 <= r.new <= 32 for r in first)
    assert len({len(r.prompt) for r in first}) > 5
    assert all(a.prompt != b.prompt for a, b in zip(first, second, strict=True))


def test_latencies_are_quantiles_over_requests_and_gaps() -> None:
    figures = latencies(4.0, [[1.0, 2.0, 4.0], [3.0, 4.0]])
    assert figures["tokens_per_s"] == 1.25
    assert figures["ttft_p50_s"] == 2.0
    assert figures["itl_p50_s"] == 1.0
    assert figures["itl_p99_s"] == pytest.approx(1.98)
    assert (quantile([], 50), quantile([3.0], 95)) == (0.0, 3.0)


def test_prefill_counts_the_prompts_positions(beside: Setting) -> None:
    result = run_bench(beside, Prefill(prompts=3, prompt=40).measure)
    for measured in (result.ours, *result.peers):
        figures = measured.figures
        assert figures["positions_per_s"] == pytest.approx(120 / figures["seconds"])


def test_prefill_shortens_prompts_to_the_context(setting: Setting) -> None:
    assert run_bench(setting, Prefill(prompts=1, prompt=1000).measure).work.sizes["prompt"] == 255


def test_score_measures_with_and_without_reuse(beside: Setting) -> None:
    result = run_bench(beside, Score(texts=3, prompt=40, scored=8).measure)
    figures = result.ours.figures
    assert figures["positions_per_s"] == pytest.approx(24 / figures["seconds"])
    assert figures["without_reuse_positions_per_s"] == pytest.approx(24 / figures["without_reuse_seconds"])
    with pytest.raises(UsageError, match="--scored 255 leaves no room for a prompt in 256 positions"):
        run_bench(beside, Score(scored=255).measure)


def test_tree_computes_each_position_once_to_score_and_a_peer_reads_every_path(beside: Setting) -> None:
    tree = Tree(beams=2, children=3, steps=3, new=4, prompt=10)
    result = run_bench(beside, tree.measure)
    (peer,) = result.peers
    assert result.work.sizes == {"beams": 2, "children": 3, "steps": 3, "new": 4, "prompt": 10}
    assert result.ours.figures["generated_tokens"] == peer.figures["generated_tokens"] == 3 * 6 * 4
    assert result.ours.figures["positions_to_score"] == 10 + 3 * 6 * 4
    assert peer.figures["positions_to_score"] == 6 * (14 + 18 + 22)
    assert peer.figures["seconds"] == pytest.approx(peer.figures["generating_s"] + peer.figures["scoring_s"])
    assert peer.ratio == pytest.approx(peer.figures["seconds"] / result.ours.figures["seconds"])


def test_tree_takes_a_scorer_of_ones_own_but_not_beside_a_peer(
    beside: Setting, setting: Setting, tmp_path: Path
) -> None:
    from support.tiny import save_model

    save_model(tmp_path / "prm", "Llama", head="TokenClassification", seed=3, num_labels=2)
    tree = Tree(beams=2, children=2, steps=2, new=3, prompt=10, prm=str(tmp_path / "prm"))
    assert run_bench(setting, tree.measure).ours.figures["positions_to_score"] == 10 + 2 * 4 * 3
    with pytest.raises(UsageError, match="--prm with --peer"):
        run_bench(beside, tree.measure)


def test_tree_that_does_not_fit_is_refused(setting: Setting) -> None:
    with pytest.raises(UsageError, match="--steps 8 of --new 32 leave no room for a prompt in 256 positions"):
        run_bench(setting, Tree().measure)


def test_speculate_compares_pairs_of_every_case(folder: Path, tmp_path: Path) -> None:
    from support.tiny import save_model

    save_model(tmp_path, "Llama", max_position_embeddings=1024)
    setting = Setting(model=str(tmp_path), threads=1, repeats=1, work=tmp_path)
    result = run_bench(setting, Speculation(new=4, at_once=8).measure)
    figures = result.ours.figures
    for case in ("copy_t0", "copy_t07", "free_t1"):
        assert figures[f"{case}_speedup"] > 0
        assert figures[f"{case}_accepted"] <= figures[f"{case}_drafted"]
    with pytest.raises(UsageError, match="do not fit in 256 positions of context"):
        run_bench(Setting(model=str(folder), threads=1, work=tmp_path), Speculation().measure)


def test_the_copied_lists_stand_whole_in_their_prompts() -> None:
    for prompt, (_, items) in zip(copy_prompts(), LISTS, strict=True):
        assert all(f"- {item}\n" in prompt for item in items)


def test_overhead_counts_full_steps_only() -> None:
    result = Overhead(rows=5, steps=12).measure()
    assert result.work.sizes == {"rows": 5, "steps": 12}
    assert 0 < result.ours.figures["ms_per_step"] <= result.ours.figures["ms_per_step_p95"]


def test_overhead_charges_three_nested_meters(monkeypatch: pytest.MonkeyPatch) -> None:
    from branchwise.reasoning.ledger import Ledger

    nested: set[int] = set()
    charge = Ledger.charge

    def noted(self: Ledger, tokens: int, flops: int, caps: tuple[object, ...], *, answering: bool) -> bool:
        nested.add(1 + len(caps))
        return charge(self, tokens, flops, caps, answering=answering)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Ledger, "charge", noted)
    Overhead(rows=2, steps=3).measure()
    assert nested == {3}


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    import anyio

    order: list[tuple[str, int]] = []

    def contender(name: str) -> Contender:
        async def once(number: int) -> dict[str, float]:
            order.append((name, number))
            return {"seconds": [100.0, 1.0, 5.0, 2.0][number]}

        return Contender(name, once)

    runs = anyio.run(interleave, [contender("a"), contender("b")], 3)
    assert order == [(name, number) for number in range(4) for name in "ab"]
    assert medians(runs["a"]) == medians(runs["b"]) == {"seconds": 2.0}


@pytest.mark.parametrize(
    ("command", "sizes"),
    [
        ("serve", ["--requests", "2", "--prompt", "9", "--new", "3"]),
        ("prefill", ["--prompts", "2", "--prompt", "9"]),
        ("score", ["--texts", "2", "--prompt", "9", "--scored", "3"]),
        ("tree", ["--beams", "2", "--children", "2", "--steps", "2", "--new", "3", "--prompt", "9"]),
    ],
)
def test_each_command_prints_one_object_and_saves_a_row_that_the_table_shows(
    command: str, sizes: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--model", str(folder), "--repeats", "1", "--threads", "1", "--work", str(tmp_path / "work")]
    rows = tmp_path / "rows"
    for _ in range(2):
        assert run(["bench", command, *common, *sizes, "--json", "--save", str(rows)]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["bench"] == second["bench"] == command
    assert first["results"][0]["work"]["figure"] in first
    assert len((rows / f"{command}.jsonl").read_text().splitlines()) == 2
    assert run(["bench", "table", str(rows)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3
    assert table[2].startswith(f"| {command}: ")
    assert len({line.count("|") for line in table}) == 1
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    assert run(["bench", "table", str(rows), "--into", str(page)]) == 0
    assert page.read_text().splitlines() == ["above", BEGIN, *table, END, "below"]


def test_overhead_is_a_command_of_several_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "overhead", "--rows", "2", "--rows", "3", "--steps", "4", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [result["work"]["sizes"]["rows"] for result in printed["results"]] == [2, 3]


def test_kv_compares_one_search_with_and_without_pruning() -> None:
    bench = Kv(problems=1, width=4)
    assert set(bench.strategies()) == {
        "beam",
        "dvts",
        "rebase",
        "ets",
        "mcts",
        "best_first",
        "speculative_rejection",
    }
    result = bench.measure("beam")
    (keeping,) = result.peers
    assert result.work.title == "kv beam(n=4, width=4)"
    assert keeping.figures["tokens"] == result.ours.figures["tokens"] > 0
    assert 0 < result.ours.figures["kv_peak_tokens"] < keeping.figures["kv_peak_tokens"]
    assert result.ours.figures["kv_peak_tokens"] < result.ours.figures["kv_unshared_peak_tokens"]
    ratio = keeping.figures["kv_peak_tokens"] / result.ours.figures["kv_peak_tokens"]
    assert keeping.ratio == pytest.approx(ratio)


def test_a_line_that_is_no_row_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "serve.jsonl").write_text("{}\n")
    assert run(["bench", "table", str(tmp_path)]) == 2
    assert "serve.jsonl line 1 is no row of a benchmark" in capsys.readouterr().err


def test_a_page_without_a_place_for_the_table_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    rows = str(tmp_path / "rows")
    assert run(["bench", "overhead", "--rows", "1", "--steps", "1", "--save", rows]) == 0
    assert run(["bench", "table", rows, "--into", str(page)]) == 2
    assert "has no place for the table" in capsys.readouterr().err
    assert page.read_text() == "nothing here\n"


def test_the_page_of_the_benchmarks_has_a_place_for_the_table() -> None:
    text = (Path(__file__).parents[3] / "evals" / "bench" / "README.md").read_text()
    assert text.index(BEGIN) < text.index(END)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["best-of-n", "--n", "0"], "--n 0: give a whole number, 1 to 16384"),
        (["best-of-n", "--n", "9" * 30], "--n 9999"),
        (["best-of-n", "--repeats", "0"], "--repeats 0"),
        (["prefill", "--threads", "1000000"], "--threads 1000000"),
        (["tree", "--beams", "16384", "--children", "2"], "32768 paths"),
        (["overhead", "--steps", "x"], "--steps x"),
        (["overhead", "--rows", "2", "--steps", "1", "--save", "FILE"], "--save"),
        (["best-of-n", "--save", "FILE/below"], "--save"),
        (["best-of-n", "--work", "FILE"], "--work"),
        (["table", "EMPTY"], "has no rows"),
        (["table", "FILE"], "has no rows"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "FILE").write_text("")
    (tmp_path / "EMPTY").mkdir()
    placed = [str(tmp_path / one) if one.split("/")[0].isupper() else one for one in arguments]
    assert run(["bench", *placed]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert said in written.err
    assert written.err.count("\n") == 1


@pytest.mark.parametrize("command", ["best-of-n", "tree", "serve", "prefill", "score", "speculate"])
def test_every_benchmark_of_a_model_takes_and_checks_the_same_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "./absent", "--threads", "1", "--repeats", "1", "--deterministic", "--json"]
    assert run(["bench", command, *options, "--dtype", "int4"]) == 2
    assert capsys.readouterr().err == "branchwise: --dtype int4: no such type; give float32 or bfloat16\n"
