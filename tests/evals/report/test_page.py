"""The page and its files: self-contained, whatever a model wrote, whatever is missing."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from branchwise.evals.report import numbers
from branchwise.evals.report.drawing import chart_specs
from branchwise.evals.report.samples import collect
from branchwise.evals.report.settings import label_of
from branchwise.evals.report.theme import PAGE
from branchwise.evals.report.write import write_report
from branchwise.evals.runs.plan import Task
from branchwise.evals.runs.record import Record
from branchwise.evals.runs.store import Store
from branchwise.evals.summary.summarise import summarise
from branchwise.reasoning.cli import main
from support.records import Outcome, made_candidate, made_record, write_run

HOSTILE = "</script><script>alert(1)</script><!--<script>&amp;\u2028 {{ 7*7 }}"
GRAPH = {
    "directed": True, "multigraph": False, "graph": {"notes": []},
    "nodes": [
        {"id": "0#0", "branch": "0", "kind": "prompt", "text": HOSTILE, "length": 4, "reason": ""},
        {"id": "0.0#0", "branch": "0.0", "kind": "step", "text": HOSTILE, "length": 9, "reason": ""},
    ],
    "links": [{"source": "0#0", "target": "0.0#0"}],
}  # fmt: skip


class Elements(HTMLParser):
    """Counts elements, and keeps every address that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.fetched += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "data") and not (value or "#").startswith(("#", "data:"))
        ]


def report(
    folder: Path, outcome: Outcome, cap_bytes: int = 2**20, *, plots: bool = False, **fields: Any
) -> str:
    """The page of a run; its charts also as files with `plots`."""
    with Store.read(write_run(folder, outcome, GRAPH, **fields)) as store:
        if plots:
            _, paths = write_report(store, folder, cap_bytes)
        else:
            with patch("branchwise.evals.report.write.write_plots"):
                _, paths = write_report(store, folder, cap_bytes)
    return paths[0].read_text(encoding="utf-8")


def hostile(task: Task, place: int) -> Record:
    candidate = made_candidate(answer=HOSTILE, score=0.4)
    return made_record(task, answer=HOSTILE, text=HOSTILE, notes=(HOSTILE,), candidates=(candidate,))


def test_the_page_fetches_nothing_and_holds_every_chart(tmp_path: Path) -> None:
    text = report(tmp_path, lambda task, place: made_record(task, correct=place % 2 == 0), plots=True)
    found = Elements(text)
    assert found.fetched == []
    assert "url(" not in re.sub(r"url\(#", "", text)
    assert "default-src 'none'" in text
    charts = re.findall(r'id="chart-([\w-]+)"', text)
    axes = [f"accuracy-{axis}" for axis in ("flops", "tokens", "seconds", "kv")]
    assert charts == [*axes, "outcomes", "costs", "kv", "reliability"]
    plots = {path.name for path in (tmp_path / "plots").iterdir()}
    assert plots == {f"{name}.{kind}" for name in charts for kind in ("svg", "png")}
    assert (tmp_path / "plots" / "kv.png").read_bytes().startswith(b"\x89PNG")


def test_every_chart_is_valid_vega_lite(tmp_path: Path) -> None:
    with Store.read(write_run(tmp_path, lambda task, place: made_record(task, score=0.4), GRAPH)) as store:
        summary = summarise(store)
    assert chart_specs(summary, PAGE, validate=True) == chart_specs(summary, PAGE)


def test_what_a_model_wrote_stays_text(tmp_path: Path) -> None:
    plain = Elements(report(tmp_path / "a", lambda task, place: made_record(task, score=0.4)))
    text = report(tmp_path / "b", hostile)
    assert Elements(text).counts.get("script") == plain.counts["script"]
    assert "alert(1)" not in text


def test_a_run_without_records_and_one_of_unknown_costs_have_pages(tmp_path: Path) -> None:
    assert "No sample is recorded yet." in report(tmp_path / "empty", lambda task, place: None)

    def unknown(task: Task, place: int) -> Record:
        record = made_record(task)
        return msgspec.structs.replace(record, usage=type(record.usage)(), candidates=())

    text = report(tmp_path / "unknown", unknown)
    assert text.count("not known for any setting") == 4
    assert "No cost is known" in text
    assert "No candidate was scored." in text


def test_an_oracle_is_dashed_and_off_the_hull(tmp_path: Path) -> None:
    def outcome(task: Task, place: int) -> Record:
        oracle = task.cell.strategy != "greedy"
        notes = ("oracle: verifier gold knows the answer",) if oracle else ()
        return made_record(task, correct=oracle or place < 5, notes=notes)

    text = report(tmp_path, outcome)
    chart = text[text.index('id="chart-accuracy-flops"') : text.index('id="chart-accuracy-tokens"')]
    assert chart.count('stroke-dasharray="4,3"') >= 2
    assert "(oracle, not ranked)" in chart
    table = text[text.index('<section id="use">') : text.index('<section id="compute">')]
    assert "greedy" in table
    assert "best_of_n" not in table


def test_bundles_hold_what_the_store_holds(tmp_path: Path) -> None:
    with Store.read(write_run(tmp_path, hostile, GRAPH, limit=3, seeds=2)) as store:
        samples = collect(store)
        records = list(store.records())
    assert (samples.kept, samples.total) == (18, 18)
    assert [problem["grid"] for problem in samples.index["problems"]] == ["000000"] * 3
    first = json.loads(zlib.decompress(base64.b64decode(samples.bundles[0].data)))
    assert len(first) == 6
    assert {record["text"] for record in first} == {HOSTILE}
    assert first[0]["graph"] == GRAPH
    assert [bundle.id for bundle in samples.bundles] == list(dict.fromkeys(r.sample for r in records))


def test_a_large_run_is_cut_to_whole_problems_and_says_so(tmp_path: Path) -> None:
    text = report(tmp_path, hostile, cap_bytes=2000, seeds=2)
    with Store.read(tmp_path) as store:
        samples = collect(store, 2000)
    assert 0 < samples.kept < samples.total == 120
    assert samples.kept % 6 == 0  # every setting and seed of a problem
    assert sum(len(base64.b64decode(bundle.data)) for bundle in samples.bundles) <= 2000
    assert f"{samples.kept} of 120 samples" in text


def test_figures_are_those_of_the_summary(tmp_path: Path) -> None:
    text = report(tmp_path, lambda task, place: made_record(task, correct=place < 13), limit=20)
    assert text.count("65.0 %") >= 3
    assert (tmp_path / "summary.csv").read_text().count("0.65") == 3
    assert "**warning: few problems.**" in (tmp_path / "summary.md").read_text()


def test_view_makes_the_report_of_a_folder_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, hostile, GRAPH, limit=2)
    assert main.run(["view", str(tmp_path)]) == 0
    names = ["report.html", "summary.json", "summary.csv", "summary.md"]
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in names]
    assert main.run(["view", str(tmp_path / "other")]) == 2
    assert "holds no run; give the --out folder of one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.449, "0.449"), (0.7, "0.700"), (32.5, "32.5"), (999.9, "1.00 k"), (1024, "1.02 k"),
     (73_181_472, "73.2 M"), (1.23e9, "1.23 G"), (2.5e13, "25.0 T")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert numbers.si(value) == text


@pytest.mark.parametrize(
    ("strategy", "label"),
    [("greedy", "greedy"), ("best_of_n(n=16)", "n=16"), ("best_of_n(n=16, select=majority)", "n=16")],
)
def test_a_point_is_labelled_by_its_numbers(strategy: str, label: str) -> None:
    assert label_of(strategy) == label
