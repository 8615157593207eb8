"""`branchwise view GRAPH.json`: the page of saved searches, as text and in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from branchwise import Budget, solve
from branchwise.reasoning.cli import main
from branchwise.reasoning.treepage import saved_page
from support.browser import Browser

PROBLEM = "Use 3, 7, 12 and 18 to make 45"
EVIL = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>@script@"


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The graphs of two strategies on one problem."""
    folder = tmp_path_factory.mktemp("graphs")
    paths = [folder / "beam.json", folder / "samples.json"]
    for path, strategy in zip(paths, ("beam(n=4, width=2)", "best_of_n(n=4)"), strict=True):
        solve(PROBLEM, strategy=strategy, budget=Budget(tokens=1000), seed=1).graph.write(path)
    return paths


@pytest.fixture
def opened(chromium: Browser, graphs: list[Path]) -> Iterator[Browser]:
    """The page of both graphs, which may log no error and ask nobody."""
    assert main.run(["view", *map(str, graphs)]) == 0
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.open(graphs[0].with_suffix(".html").as_uri())
    yield chromium
    assert chromium.errors == []
    assert chromium.requests == []


def test_both_trees_stand_side_by_side_with_every_step(opened: Browser, graphs: list[Path]) -> None:
    for index, path in enumerate(graphs):
        nodes = json.loads(path.read_text())["nodes"]
        written = [node["id"] for node in nodes if node["length"] or node["kind"] == "prompt"]
        shown = f"[...document.querySelectorAll('.pane')[{index}].querySelectorAll('.node')]"
        assert sorted(opened.run(f"{shown}.map((n) => n.dataset.step)")) == sorted(written)
    titles = opened.run("[...document.querySelectorAll('.title')].map((t) => t.textContent)")
    assert titles == ["beam: beam", "samples: best_of_n"]


def test_a_saved_answer_has_its_path(opened: Browser, graphs: list[Path]) -> None:
    ending = json.loads(graphs[1].read_text())["graph"]["ending"]
    pane = "document.querySelectorAll('.pane')[1]"
    steps = opened.run(f"[...{pane}.querySelectorAll('.node.chosen')].map((n) => n.dataset.step)")
    assert {step.partition("#")[0] for step in steps} == {"0", ending["branch"]}
    assert ending["answer"] in opened.run(f"{pane}.querySelector('.state').textContent")
    assert opened.run(f"{pane}.querySelector('.figure').textContent") == str(ending["tokens"])


def test_markup_in_a_saved_graph_stays_text(chromium: Browser, tmp_path: Path) -> None:
    node = {"id": "0#0", "branch": "0", "kind": "prompt", "start": 0, "length": 3, "text": EVIL, "stop": ""}
    graph = {"nodes": [node | {"reason": EVIL, "verified": None}], "links": [], "graph": {"notes": [EVIL]}}
    page = tmp_path / "evil.html"
    page.write_text(saved_page({EVIL: graph}))
    chromium.open(page.as_uri())
    chromium.run("document.querySelector('.node').dispatchEvent(new MouseEvent('click'))")
    assert chromium.run("document.querySelector('.step .text').textContent") == EVIL
    assert chromium.run("document.querySelector('.title').textContent") == EVIL
    assert chromium.run("window.pwned === undefined && !document.querySelector('main img, main script')")


def test_a_page_holds_its_graphs_and_asks_nobody(graphs: list[Path]) -> None:
    data = json.loads(graphs[0].read_text())
    page = saved_page({"beam": data})
    config = page.partition('id="config">')[2].partition("</script>")[0]
    assert json.loads(config) == {"saved": [{"name": "beam", "graph": data}]}
    assert "default-src 'none'" in page
    assert page.count("http") == page.count("http-equiv") + page.count("http://www.w3.org/2000/svg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[]", "not a search graph"),
        ('{"nodes": [{"id": "0#0"}], "links": []}', "not a search graph"),
        ('{"nodes": [{"id": "a", "branch": "0", "text": ""}], "links": [{"source": "a", "target": "b"}]}',
         "not a search graph"),
    ],
)  # fmt: skip
def test_another_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "g.json").write_text(text)
    assert main.run(["view", str(tmp_path / "g.json")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "g.html").exists()


def test_two_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["view", str(tmp_path), str(tmp_path)]) == 2
    assert "give one folder" in capsys.readouterr().err
