"""Pages of odd runs in a real browser: whatever problems say and whatever came of them, they hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from branchwise.evals.report.write import write_report
from branchwise.evals.runs.plan import Task, make_plan
from branchwise.evals.runs.record import Record, Spent, failed_record
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.base import Gold, Sample
from branchwise.verifiers.answer_type import AnswerType
from support.browser import Browser
from support.evaluating import recipe
from support.records import made_candidate, made_record

HOSTILE = (
    "</script><script>document.title='taken'</script><!-- \"'`${1}` {{ 7*7 }} {% raw %} &amp; &lt; \\u003c"
    "<img src=x onerror=\"document.title='taken'\"> \u2028\u2029\x85\x00\x1b[31m \u202ereversed\u202c "
    "\U0001f9ee \u0645\u0631\u062d\u0628\u0627 \u4e2d\u6587 a\u0300\u0301\u0302 \ufeff\ufffe"
)
ENDLESS = "x" * 200_000
Outcome = Callable[[Task, int], Record | None]


def censored(task: Task, place: int) -> Record:
    return made_record(
        task, correct=False, answer=None, text="", censored=True, reason="budget", candidates=(), score=None
    )


def saying(text: str) -> Outcome:
    def outcome(task: Task, place: int) -> Record:
        candidate = made_candidate(answer=text, score=0.4, stop=text)
        changes: dict[str, Any] = {"answer": text, "text": text, "grade_reason": text, "notes": (text,)}
        return made_record(task, candidates=(candidate,), **changes)

    return outcome


def unknown(task: Task, place: int) -> Record:
    return made_record(task, usage=Spent(), candidates=(), score=None)


def failing(text: str) -> Outcome:
    return lambda task, place: failed_record(task, RuntimeError(text))


def mixed(task: Task, place: int) -> Record:
    flops = 1000 * (1 + len(task.cell.strategy)) * (task.cell.tokens or 1)
    record = made_record(task, correct=(place + len(task.cell.strategy)) % 3 == 0)
    return msgspec.structs.replace(record, usage=msgspec.structs.replace(record.usage, flops=flops))


FORTY = {
    "strategies": ("best_of_n(n=1..8+1)",),
    "budgets": tuple(f"tokens={2**i}" for i in range(6, 11)),
}
CASES: dict[str, tuple[Outcome, dict[str, Any]]] = {
    "hostile": (saying(HOSTILE), {"text": HOSTILE, "level": HOSTILE}),
    "endless": (saying(ENDLESS), {"text": ENDLESS, "level": "y" * 300}),
    "hostile failures": (failing(HOSTILE + ENDLESS), {}),
    "no sample": (lambda task, place: None, {}),
    "one strategy, one problem": (
        lambda task, place: made_record(task),
        {"strategies": ("greedy",), "limit": 1},
    ),
    "half a run": (lambda task, place: made_record(task) if place < 2 else None, {}),
    "all censored": (censored, {}),
    "all right": (lambda task, place: made_record(task, correct=True), {}),
    "all wrong": (lambda task, place: made_record(task, correct=False), {}),
    "all ungraded": (lambda task, place: made_record(task, correct=None), {}),
    "all failed": (failing("made by hand"), {}),
    "no cost known": (unknown, {}),
    "40 settings": (mixed, FORTY),
}


def graph(text: str) -> bytes:
    nodes = [
        {"id": "0#0", "branch": "0", "kind": "prompt", "text": text, "length": 4, "reason": ""},
        {"id": "0.0#0", "branch": "0.0", "kind": "step", "text": text, "length": 9, "reason": text[:50]},
    ]
    links = [{"source": "0#0", "target": "0.0#0"}]
    return msgspec.json.encode({"graph": {"notes": []}, "nodes": nodes, "links": links})


def write(folder: Path, outcome: Outcome, *, text: str = "1+2", level: str = "1", **fields: Any) -> str:
    """The page's address of a run of problems that say `text`."""
    given = {"strategies": ("greedy", "best_of_n(n=2)"), "limit": 4, **fields}
    samples = [
        Sample(
            id=f"{text[:300]}{i}", problem=text, gold=Gold(AnswerType.STRING, text), level=f"{level}{i % 2}"
        )
        for i in range(given["limit"])
    ]
    plan = make_plan(recipe(**given), samples)
    place = {sample.id: i for i, sample in enumerate(samples)}
    with Store.open(folder, plan, resume=False) as store:
        for task in plan.tasks():
            record = outcome(task, place[task.sample.id])
            if record is not None:
                store.add(record, None if record.error else graph(text))
        with patch("branchwise.evals.report.write.write_plots"):  # the page holds the same charts
            _, paths = write_report(store, folder)
    return paths[0].as_uri()


LONG = ("endless", "40 settings")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in LONG else case for case in CASES]
)
def test_the_page_of_an_odd_run_opens_and_holds(chromium: Browser, tmp_path: Path, case: str) -> None:
    outcome, fields = CASES[case]
    address = write(tmp_path, outcome, **fields)
    chromium.errors.clear()
    chromium.requests.clear()
    for width in (400, 1280):
        chromium.open(address, width=width, dark=width == 400)
        assert chromium.run("document.title").endswith("branchwise")
        assert chromium.run("document.documentElement.scrollWidth") <= width
        if case != "no sample":
            opened(chromium, failed="fail" in case)
            assert chromium.run("document.documentElement.scrollWidth") <= width
    if case in ("hostile", "endless"):
        said = fields["text"].replace("\x00", "\ufffd") if case == "hostile" else fields["text"]
        shown = chromium.run("document.querySelector('.detail pre.output').textContent")
        assert said.split("\x85")[0] in shown
        assert not chromium.run("!!document.querySelector('#samples img, #samples script, .detail b')")
    assert chromium.errors == []
    assert chromium.requests == []


def opened(page: Browser, *, failed: bool) -> None:
    """The first problem's first sample is open, with its tree or its failure."""
    page.run("document.querySelector('.problem').click()")
    page.wait("document.querySelector('.detail h4')")
    if failed:
        page.wait(
            "document.querySelector('.detail .failure')?.textContent.startsWith('It failed: RuntimeError')"
        )
        page.run("$('filter').value = 'failed'; $('filter').dispatchEvent(new Event('change'))")
        assert page.run("document.querySelectorAll('.problem').length") > 0
    else:
        page.wait("document.querySelectorAll('#tree g.node').length > 0")
