"""The page of a running search in a real browser, against a real server."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")

from support.browser import Browser

if TYPE_CHECKING:
    from support.serving import ServerThread


PROBLEM = "Use 3, 7, 12 and 18 to make 45"
LONG = "best_of_n(n=none, select=majority, stop_on_verified=false)"
FIGURES = (
    "[...document.querySelectorAll('.bar')].map((bar) => "
    "[bar.children[0].textContent, bar.children[2].textContent])"
)


@pytest.fixture
def page(chromium: Browser, server: "ServerThread") -> Iterator[Browser]:
    """The page of a server without keys; whatever a test does in it may log no error and ask no one else."""
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.open(f"{server.url}/ui")
    chromium.wait("document.querySelectorAll('#strategies option').length > 10")
    yield chromium
    assert chromium.errors == []
    assert {address.removeprefix(server.url) for address in chromium.requests} <= {
        "/v1/models",
        "/v1/chat/completions",
    }


def fill(page: Browser, **fields: Any) -> None:
    for name, value in fields.items():
        page.run(f"byId({name!r}).value = {str(value)!r}")


def solve(page: Browser, **fields: Any) -> None:
    """Fill the form in, and wait until all of its searches ended."""
    fill(page, **{"problem": PROBLEM, "seed": 1, **fields})
    page.run("byId('solve').click()")
    page.wait("document.querySelector('.pane') && !byId('solve').disabled")


def count(page: Browser, selector: str) -> int:
    return page.run(f"document.querySelectorAll({selector!r}).length")


def text(page: Browser, selector: str) -> str:
    return page.run(f"document.querySelector({selector!r}).textContent")


def label_of(page: Browser, step: str) -> str:
    """What a screen reader says of a step."""
    return page.run(f"document.querySelector('[data-step=\"{step}\"]').getAttribute('aria-label')")


def test_the_tree_grows_while_the_search_runs(page: Browser, server: "ServerThread") -> None:
    fill(page, problem=PROBLEM, first=LONG, tokens=8000)
    page.run("byId('solve').click()")
    page.wait("document.querySelectorAll('.node').length > 3")
    early = count(page, ".node")
    assert page.run("byId('solve').disabled")
    page.wait(f"document.querySelectorAll('.node').length > {early}")
    page.run("byId('stop').click()")
    page.wait("!byId('solve').disabled")
    assert text(page, ".state") == "stopped"


def test_an_answer_is_shown_with_its_path(page: Browser) -> None:
    solve(page, first="best_of_n(n=4)", tokens=1000)
    assert text(page, ".state") == "answer 7*(18-12)+3, proved by a check · solved"
    path = page.run(
        "[...document.querySelectorAll('.node.chosen')].map((n) => "
        "[n.dataset.step, n.querySelector('text').textContent]).sort()"
    )
    assert [step for step, _ in path] == ["0#0", *(f"0.2#{index}" for index in range(len(path) - 1))]
    assert path[-1][1] == "✓ 7*(18-12)+3<eos>"
    assert count(page, ".tree path.chosen") == len(path) - 1


def test_pruned_steps_are_faded_and_say_why(page: Browser) -> None:
    solve(page, first="beam(n=4, width=2)", tokens=1000)
    reasons = "[...document.querySelectorAll('.node.pruned')].map((n) => n.getAttribute('aria-label')).join()"
    assert "pruned: not among the best 2" in page.run(reasons)
    assert page.run("Number(getComputedStyle(document.querySelector('.node.pruned')).opacity)") < 1


def test_scores_give_the_colours(page: Browser) -> None:
    solve(page, first="beam(n=4, width=2)", tokens=1000)
    colours = "[...document.querySelectorAll('.node.scored .score')].map((r) => getComputedStyle(r).fill)"
    assert len(set(page.run(colours))) > 2
    assert count(page, ".node:not(.scored) .score:not([fill])") >= 1  # the prompt has none


def test_the_bars_are_the_budget_by_kind(page: Browser) -> None:
    solve(page, first="beam(n=4, width=2)", tokens=1000, seconds=30)
    figures = dict(page.run(FIGURES))
    assert list(figures) == ["tokens", "FLOPs", "seconds", "KV"]
    spent = int(figures["tokens"].removesuffix(" of 1000"))
    assert 0 < spent <= 1000
    assert figures["seconds"].endswith(" of 30")
    parts = page.run("[...document.querySelectorAll('.kinds span')].map((s) => s.textContent)")
    assert sum(int(part.split()[0]) for part in parts) == spent
    assert any(part.endswith("on pruned paths") for part in parts)
    assert figures["KV"].startswith("0 now, ")
    assert page.run("[...document.querySelectorAll('.track')].map((t) => t.matches('.unlimited'))") == [
        False, True, False, True,
    ]  # fmt: skip


def test_what_forks_share_is_counted(page: Browser) -> None:
    solve(page, first="best_of_n(n=4)", tokens=1000)
    held, alone = page.run("document.querySelector('.sharing').textContent.match(/\\d+/g).map(Number)")[:2]
    label = label_of(page, "0#0")
    prompt = int(label.split(" tokens")[0].split(", ")[-1])
    assert label.endswith("KV shared by 4 paths")
    assert alone - held == prompt * 3  # the prompt is all that samples share


def test_a_wide_tree_can_be_fitted_to_its_pane(page: Browser) -> None:
    solve(page, first="beam(n=4, width=2)", second="best_of_n(n=4)", tokens=1000)
    over = "document.querySelector('.tree').scrollWidth - document.querySelector('.tree').clientWidth"
    assert page.run(over) > 0
    page.run("document.querySelector('.fit').click()")
    assert page.run(over) <= 0
    assert text(page, ".fit[aria-pressed=true]") == "Fit"


def test_a_step_opens_by_click_and_shows_its_text(page: Browser) -> None:
    solve(page, first="best_of_n(n=4)", tokens=1000)
    page.run("document.querySelector('[data-step=\"0.2#0\"]').dispatchEvent(new MouseEvent('click'))")
    assert page.run("!document.querySelector('.step').hidden")
    assert text(page, ".step .text").endswith(";")
    assert text(page, ".step .whole").startswith(PROBLEM)


def test_the_tree_is_walked_and_opened_by_keys(page: Browser) -> None:
    solve(page, first="best_of_n(n=4)", tokens=1000)
    key = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{}', bubbles: true }}))"
    page.run("document.querySelector('.node[tabindex=\"0\"]').focus()")
    assert page.run("document.activeElement.getAttribute('aria-label')").startswith("Use 3")
    page.run(key.format("ArrowRight"))
    page.run(key.format("Enter"))
    assert text(page, ".step .place").startswith("Step 0 of branch 0.")
    page.run(key.format("Escape"))
    assert page.run("document.querySelector('.step').hidden")
    assert page.run("document.activeElement.classList.contains('node')")


def test_two_strategies_stand_side_by_side(page: Browser) -> None:
    solve(page, first="beam(n=4, width=2)", second="best_of_n(n=4)", tokens=1000)
    tops = page.run("[...document.querySelectorAll('.pane')].map((p) => p.getBoundingClientRect().top)")
    assert len(tops) == 2
    assert tops[0] == tops[1]
    titles = page.run("[...document.querySelectorAll('.pane .title')].map((t) => t.textContent)")
    assert titles == ["beam(n=4, width=2)", "best_of_n(n=4)"]


def test_an_error_is_told_on_the_page(chromium: Browser, server: "ServerThread") -> None:
    chromium.open(f"{server.url}/ui")
    chromium.wait("document.querySelectorAll('#strategies option').length > 10")
    solve(chromium, first="no_such_strategy", tokens=1000)
    assert "no_such_strategy" in text(chromium, ".state.failed")


EVIL = "<img src=x onerror='window.pwned = 1'><script>window.pwned = 1</script>"
NO_MARKUP = "window.pwned === undefined && !document.querySelector('main img, main script')"


def test_markup_that_the_server_quotes_stays_text(chromium: Browser, server: "ServerThread") -> None:
    """The reference model refuses such a problem, and says which; so does the grammar of strategies."""
    chromium.open(f"{server.url}/ui")
    chromium.wait("document.querySelectorAll('#strategies option').length > 10")
    solve(chromium, problem=EVIL, first="greedy", second=EVIL, tokens=200)
    assert count(chromium, ".state.failed") == 2
    assert "<img" in text(chromium, ".state.failed")
    assert chromium.run(NO_MARKUP)


def test_markup_in_the_events_of_a_search_stays_text(page: Browser) -> None:
    events: list[dict[str, Any]] = [
        {"event": "branchopened", "branch": "0", "parent": None, "start": 9, "text": EVIL},
        {"event": "wrote", "branch": "0", "text": EVIL, "phase": "thinking"},
        {"event": "stepdone", "branch": "0", "text": EVIL, "tokens": 7, "stop": EVIL, "answer": EVIL},
        {"event": "scored", "branch": "0", "verifier": EVIL, "value": 0.5, "verified": False, "detail": EVIL},
        {"event": "noted", "text": EVIL, "fields": {EVIL: EVIL}},
        {"event": "pruned", "branch": "0", "reason": EVIL},
        {"event": "ended", "reason": EVIL, "answer": EVIL, "verified": False},
    ]
    told = json.dumps([{"tokens_spent": 7, **event} for event in events])
    page.run(
        f"(() => {{ const pane = new Pane({EVIL!r}); show([pane]); "
        f"for (const event of {told}) pane.tree.apply(event); pane.draw(); "
        "for (const node of document.querySelectorAll('.node')) node.dispatchEvent(new MouseEvent('click'));"
        " })()"
    )
    assert text(page, ".step .text") == text(page, ".title") == EVIL
    assert text(page, ".step .whole") == f"{EVIL}\n{EVIL}"
    assert page.run(NO_MARKUP)


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_makes_a_narrow_page_scroll_sideways(
    chromium: Browser, page: Browser, server: "ServerThread", dark: bool
) -> None:
    chromium.open(f"{server.url}/ui", width=400, dark=dark)
    chromium.wait("document.querySelectorAll('#strategies option').length > 10")
    solve(chromium, first="beam(n=4, width=2)", second="best_of_n(n=4)", tokens=1000)
    chromium.run("document.querySelector('.node').dispatchEvent(new MouseEvent('click'))")
    assert chromium.run("document.documentElement.scrollWidth") <= 400
    tops = chromium.run("[...document.querySelectorAll('.pane')].map((p) => p.getBoundingClientRect().top)")
    assert tops[0] < tops[1]  # one below the other


def test_a_server_with_keys_is_asked_with_one(chromium: Browser) -> None:
    from branchwise.serve.keys import KeyEntry, KeyRing
    from support.serving import ServerThread, settings_for

    with ServerThread(settings_for(keys=KeyRing({"alice": KeyEntry(key="alice-key")}))) as guarded:
        chromium.errors.clear()
        chromium.open(f"{guarded.url}/ui")
        assert chromium.run("!byId('keyed').hidden")
        fill(chromium, key="alice-key")
        solve(chromium, first="best_of_n(n=4)", tokens=1000)
        assert text(chromium, ".state").startswith("answer ")
        assert chromium.errors == []
        fill(chromium, key="wrong-key")
        solve(chromium, first="best_of_n(n=4)", tokens=1000)
        assert text(chromium, ".state.failed").startswith("no valid API key")
