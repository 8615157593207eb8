"""The live view folds events into rows."""

import io

import pytest
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.cli.live import SHOWN, SearchView
from branchwise.reasoning.events import BranchOpened, Ended, Event, Noted, Offered, Pruned, Scored, StepDone
from branchwise.reasoning.solution import Reason
from rich.console import Console


def _events() -> list[Event]:
    at = {"problem_id": "p", "tokens_spent": 0}
    return [
        BranchOpened(**at, branch="0", parent=None),
        BranchOpened(**at, branch="0.0", parent="0"),
        BranchOpened(**at, branch="0.1", parent="0"),
        StepDone(problem_id="p", tokens_spent=7, branch="0.0", text="12*3=36>\n7;", stop="mark", tokens=7),
        StepDone(
            problem_id="p", tokens_spent=19, branch="0.1", text="a[1]", stop="eos", tokens=12, answer="12*3+7"
        ),
        Scored(problem_id="p", tokens_spent=19, branch="0.1", verifier="replay", value=1.0, verified=True),
        Offered(
            problem_id="p",
            tokens_spent=19,
            branch="0.1",
            answer="12*3+7",
            incumbent="0.1",
            incumbent_answer="12*3+7",
        ),
        Noted(problem_id="p", tokens_spent=19, text="no step scores"),
        Pruned(problem_id="p", tokens_spent=19, branch="0.0", reason="solved"),
        Ended(problem_id="p", tokens_spent=19, reason=Reason.SOLVED, answer="12*3+7", verified=True),
    ]


def _drawn(view: SearchView) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(view)
    return console.export_text()


def test_the_view_shows_branches_scores_and_the_budget() -> None:
    view = SearchView("Use 3, 7 and 12 to make 43", Budget(tokens=4096))
    for event in _events():
        view.receive(event)
    text = _drawn(view)
    for part in (
        "Use 3, 7 and 12",
        "19 tokens of 4096",
        "best: 12*3+7",
        "0.1",
        "verified",
        "1.000",
        "a[1]",
        "no step scores",
    ):
        assert part in text
    assert "12*3=36> 7;" in text
    assert view.shown()[0].id == "0.1"
    assert view.rows["0.0"].state == "solved"
    assert view.ended == "solved"


def test_a_refuted_candidate_is_no_answer() -> None:
    view = SearchView("p", Budget(tokens=10))
    view.receive(
        Scored(problem_id="p", tokens_spent=5, branch="0.0", verifier="replay", value=0.0, verified=False)
    )
    view.receive(
        Offered(
            problem_id="p", tokens_spent=5, branch="0.0", answer="3", incumbent="0.0", incumbent_answer="3"
        )
    )
    text = _drawn(view)
    assert "refuted" in text
    assert "no answer yet" in text


@pytest.mark.parametrize("budget", [Budget(), Budget(seconds=60), Budget(flops=10)])
def test_the_view_does_without_a_token_limit(budget: Budget) -> None:
    view = SearchView("p", budget)
    assert "0 tokens" in _drawn(view)


def test_many_branches_do_not_fill_the_screen() -> None:
    view = SearchView("p", Budget(tokens=10))
    for index in range(SHOWN + 5):
        view.receive(BranchOpened(problem_id="p", tokens_spent=0, branch=f"0.{index}", parent="0"))
    text = _drawn(view)
    assert "+ 5 more" in text
    assert f"0.{SHOWN + 4} " in text
