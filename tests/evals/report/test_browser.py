"""The page of a real run in a real browser."""

from collections.abc import Iterator

import pytest
from support.browser import Browser
from support.evaluating import recipe, run

VISIBLE = (
    "(s) => { const b = document.querySelector(s).getBoundingClientRect(); return b.width * b.height > 0; }"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small run with base samples, as `branchwise eval` leaves it."""
    folder = tmp_path_factory.mktemp("run")
    what = recipe(strategies=("greedy", "best_of_n(n=4)"), limit=6, seeds=2, difficulty=16)
    assert run(what, folder, report=True) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Browser]:
    """The loaded page; whatever a test does in it may log no error and fetch nothing."""
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.open(address)
    yield chromium
    assert chromium.errors == []
    assert chromium.requests == []


def visible(page: Browser, selector: str) -> bool:
    return page.run(f"({VISIBLE})({selector!r})")


def test_charts_are_drawn(page: Browser) -> None:
    for name in ("accuracy-flops", "outcomes", "costs", "kv", "coverage"):
        assert visible(page, f"#chart-{name} svg")
    marks = (
        "document.querySelectorAll('#chart-accuracy-flops .mark-symbol.role-mark path[aria-label]').length"
    )
    assert page.run(marks) == 2  # one for each setting


def test_tabs_change_the_axis(page: Browser) -> None:
    assert not visible(page, "#chart-accuracy-seconds svg")
    page.run("document.querySelector('#tab-seconds').click()")
    assert visible(page, "#chart-accuracy-seconds svg")
    assert not visible(page, "#chart-accuracy-flops svg")


def test_a_sample_opens_with_its_tree_and_a_step_shows_its_text(page: Browser) -> None:
    page.wait("document.querySelectorAll('.problem').length === 6")
    page.run("document.querySelectorAll('.problem')[2].click()")
    page.wait("document.querySelector('.problem[aria-current=true]')?.dataset.place === '2'")
    page.wait("document.querySelector('.seeds tbody tr:nth-child(2)')")
    page.run("document.querySelector('.seeds tbody tr:nth-child(2) button').click()")
    page.wait("location.hash === '#sample/2/1/0'")
    page.wait("document.querySelector('.detail h4')?.textContent === 'best_of_n(n=4) @ tokens=256, seed 0'")
    page.wait("document.querySelectorAll('#tree g.node').length > 3")
    assert visible(page, "#tree g.node rect")
    edges = page.run("document.querySelectorAll('#tree path').length")
    assert edges == page.run("document.querySelectorAll('#tree g.node').length") - 1  # one tree
    page.run("document.querySelectorAll('#tree g.node')[1].dispatchEvent(new MouseEvent('click'))")
    page.wait("document.querySelector('#step pre')?.textContent.includes('=')")


def test_the_returned_path_is_marked_and_can_stand_alone(page: Browser) -> None:
    page.wait("document.querySelectorAll('#tree g.node').length > 2")
    right = "[...document.querySelectorAll('.seeds button')].find((b) => b.title.startsWith('right'))"
    place = "[...document.querySelectorAll('.problem')].find((b) => b.querySelector('[style*=\"right\"]'))"
    page.run(f"{place}.click()")
    page.wait(right)
    page.run(f"{right}.click()")
    page.wait("document.querySelector('#tree g.node.chosen circle.right')")
    page.run("document.querySelector('.key input').click()")
    assert page.run("document.querySelectorAll('#tree g.node:not(.chosen)').length") == 0


def test_a_link_to_a_sample_opens_it(page: Browser, address: str) -> None:
    page.open(f"{address}#sample/1/0/1")
    page.wait("document.querySelector('.detail h4')?.textContent === 'greedy @ tokens=256, seed 1'")
    page.wait("document.querySelector('#samples').getBoundingClientRect().top < innerHeight")


def test_the_list_of_problems_is_searched_and_filtered(page: Browser) -> None:
    page.wait("document.querySelectorAll('.problem').length === 6")
    text = page.run("document.querySelector('.problem .title').textContent")
    page.run(f"$('find').value = {text!r}; $('find').dispatchEvent(new Event('input'))")
    assert page.run("document.querySelectorAll('.problem').length") == 1
    page.run(
        "$('find').value = ''; $('filter').value = 'cut'; $('filter').dispatchEvent(new Event('change'))"
    )
    assert page.run("document.querySelector('#count').textContent").startswith("0 of 6 problems")


def test_the_tree_is_walked_by_the_arrow_keys(page: Browser) -> None:
    page.wait("document.querySelectorAll('#tree g.node').length > 2")
    page.run("document.querySelector('#tree g.node').focus()")
    key = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{}', bubbles: true }}))"
    page.run(key.format("ArrowRight"))
    assert page.run("document.activeElement === document.querySelectorAll('#tree g.node')[1]")
    page.run(key.format("Enter"))
    page.wait("document.querySelector('#step h4')")


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_makes_the_page_scroll_sideways(
    chromium: Browser, page: Browser, address: str, width: int
) -> None:
    chromium.open(address, width=width, dark=width == 400)
    chromium.wait("document.querySelectorAll('#tree g.node').length > 2")
    assert chromium.run("document.documentElement.scrollWidth") <= width
