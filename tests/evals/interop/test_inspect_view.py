"""An exported run in inspect_ai's viewer, in a real browser."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from branchwise.evals.runs.record import Record, branch_texts
from branchwise.evals.runs.store import Store
from branchwise.reasoning.cli.main import run as run_command
from support.browser import WAIT_S, Browser
from support.evaluating import recipe, run

pytest.importorskip("inspect_ai", reason="needs branchwise[inspect]")

STRATEGIES = ("greedy", "best_of_n(n=4)")
BUDGET = "tokens=300"
NOT_OURS = "/api/flow"
"""The viewer asks for a file of inspect_flow, which a folder of logs need not have."""

ROWS = "[...document.querySelectorAll('a[role=row]')]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the reference model, with its logs."""
    folder = tmp_path_factory.mktemp("run") / "run"
    assert run(recipe(strategies=STRATEGIES, budgets=(BUDGET,), limit=5), folder) == 0
    assert run_command(["export", str(folder), "--out", str(folder / "logs")]) == 0
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """`inspect view` of the logs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "inspect_ai", "view", "start", "--host", "127.0.0.1", "--port", str(port)]
    viewer = subprocess.Popen(
        [*serve, "--log-dir", str(folder / "logs")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        found = f"http://127.0.0.1:{port}/"
        until = time.monotonic() + WAIT_S
        while not _answers(found):
            if viewer.poll() is not None:
                pytest.fail(viewer.communicate()[0].decode())
            assert time.monotonic() < until
            time.sleep(0.05)
        yield found
    finally:
        viewer.terminate()
        viewer.communicate(timeout=WAIT_S)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urlopen(address, timeout=WAIT_S):
        return True
    return False


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Browser]:
    """The list of logs; whatever a test does from there may log no error."""
    chromium.errors.clear()
    chromium.open(address)
    chromium.wait(f"{ROWS}.filter((row) => row.innerText.includes('strategy=')).length === {len(STRATEGIES)}")
    yield chromium
    assert [error for error in chromium.errors if NOT_OURS not in error] == []


def records(folder: Path, strategy: str) -> list[Record]:
    with Store.read(folder) as store:
        return [record for record in store.records() if record.strategy == strategy]


def letter(record: Record) -> str:
    return "N" if record.answer is None else "C" if record.correct else "I"


def rows(page: Browser) -> list[list[str]]:
    """The lines of text of each row of the list that is shown."""
    return [re.split(r"\n+", text.strip()) for text in page.run(f"{ROWS}.map((row) => row.innerText)")]


def open_log(page: Browser, strategy: str, samples: int) -> None:
    said = f'strategy="{strategy}"'
    page.run(f"{ROWS}.find((row) => row.innerText.includes({said!r})).click()")
    page.wait(f"{ROWS}.length === {samples}")


def test_the_list_tells_the_strategies_apart_with_their_accuracy(page: Browser, folder: Path) -> None:
    shown = {row[2]: row for row in rows(page)}
    for strategy in STRATEGIES:
        of = records(folder, strategy)
        (row,) = (row for said, row in shown.items() if said.startswith(f'strategy="{strategy}", '))
        assert row[:2] == ["countdown", "reference"]
        assert f"{sum(bool(record.correct) for record in of) / len(of):g}" in row
        assert str(len(of)) in row


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_log_lists_our_samples_with_their_answers_and_grades(
    page: Browser, folder: Path, strategy: str
) -> None:
    expected = {record.sample: record for record in records(folder, strategy)}
    open_log(page, strategy, len(expected))
    assert "NaN" not in page.run("document.body.innerText")
    shown = {row[0]: row for row in rows(page)}
    assert shown.keys() == expected.keys()
    for sample, record in expected.items():
        assert shown[sample][-1] == letter(record)
        assert record.answer is None or record.answer in shown[sample]


def open_sample(page: Browser, strategy: str, record: Record, samples: int) -> str:
    """The text of the sample's page once its first candidate is there."""
    open_log(page, strategy, samples)
    page.run(f"{ROWS}.find((row) => row.innerText.startsWith({record.sample!r})).click()")
    page.wait("document.body.innerText.includes('SOLVER: CANDIDATE')")
    return page.run("document.body.innerText")


def test_a_sample_opens_with_every_candidate_to_the_letter(page: Browser, folder: Path) -> None:
    strategy = STRATEGIES[1]
    kept = records(folder, strategy)
    chosen = next(record for record in kept if any("*" in (c.answer or "") for c in record.candidates))
    shown = open_sample(page, strategy, chosen, len(kept))
    with Store.read(folder) as store:
        texts = branch_texts(json.loads(store.graph(chosen.key) or b""))
    for candidate in chosen.candidates:
        assert f"SOLVER: CANDIDATE {candidate.id}" in shown
        assert texts[candidate.id] in shown
    assert re.search(rf"\bSCORE\s+{letter(chosen)}\b", shown)


def test_a_sample_opens_with_its_search_graph(page: Browser, folder: Path) -> None:
    kept = records(folder, STRATEGIES[0])
    open_sample(page, STRATEGIES[0], kept[0], len(kept))
    page.wait("document.body.innerText.includes('INFO: BRANCHWISE SEARCH GRAPH')")
    assert '"directed": true' in page.run("document.body.innerText")
