"""A search that fails: what it has is printed, then one line of error, exit status 3."""

import json

import pytest
from branchwise import Search, Strategy
from branchwise.strategies.greedy import Greedy
from cli.command_line import Branchwise

PROBLEM = "Use 3 and 4 to make 7"


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Strategy, search: Search) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Greedy, "run", run)


@pytest.mark.usefixtures("failing")
def test_a_failed_search_is_one_line_and_status_3(branchwise: Branchwise) -> None:
    ran = branchwise("solve", PROBLEM, "--strategy", "greedy")
    assert ran.status == 3
    assert "ended: failed" in ran.out
    assert ran.err == "branchwise: the search failed: out of luck\n"


@pytest.mark.usefixtures("failing")
def test_json_tells_the_failure(branchwise: Branchwise) -> None:
    ran = branchwise("solve", PROBLEM, "--strategy", "greedy", "--json")
    assert ran.status == 3
    assert json.loads(ran.out)["error"] == "out of luck"


@pytest.mark.usefixtures("failing")
def test_verbose_shows_the_traceback(branchwise: Branchwise) -> None:
    ran = branchwise("solve", PROBLEM, "--strategy", "greedy", "-v")
    assert ran.status == 3
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1] == "branchwise: the search failed: out of luck"
