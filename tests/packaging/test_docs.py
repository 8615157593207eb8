"""The code in the README and the docs runs as it stands."""

import re
from pathlib import Path

import msgspec
import pytest
from branchwise.strategies.registry import describe, find_strategy

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \|(.*)\|$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name
)
def test_the_code_of_a_page_runs(page: Path) -> None:
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    for block in BLOCK.finditer(page.read_text()):
        line = page.read_text().count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not missing


def test_the_table_of_strategies_has_each_of_them_as_the_code_has_it() -> None:
    rows = {
        name: [cell.strip() for cell in cells.split("|")]
        for name, cells in ROW.findall((ROOT / "docs" / "strategies.md").read_text())
    }
    assert sorted(rows) == sorted(info.name for info in describe())
    for info in describe():
        _, _, parameters, lossless, needs, _ = rows[info.name]
        fields = {field.name for field in msgspec.structs.fields(find_strategy(info.name))}
        assert set(NAME.findall(parameters)) <= fields, info.name
        if "as" not in lossless.split():
            assert (lossless == "yes") == info.lossless, info.name
        assert not info.needs.step_scores or "step scores" in needs, info.name
        assert not info.needs.scores or "verifier" in needs, info.name
        assert all(model in needs for model in info.needs.models), info.name
        assert not info.needs.capabilities or "token statistics" in needs, info.name


def test_a_complete_strategy_takes_less_than_forty_lines() -> None:
    (block,) = [
        block[1]
        for block in BLOCK.finditer((ROOT / "docs" / "strategies.md").read_text())
        if "(Strategy, tag=" in block[1]
    ]
    assert len(block.splitlines()) < 40
