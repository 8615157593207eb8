"""The wheel: `branchwise/` and its metadata, nothing else at the top of site-packages."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "checkpoints")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names in a wheel built from a copy: building in place would leave folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    shutil.copytree(root, copy, ignore=LEFT_OUT)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, *build, str(copy)], check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_nothing_else_lands_at_the_top(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel}
    assert sorted("dist-info" if top.endswith(".dist-info") else top for top in tops) == [
        "branchwise",
        "dist-info",
    ]


@pytest.mark.slow
def test_every_module_and_no_test_is_in_it(wheel: list[str], root: Path, sources: list[Path]) -> None:
    modules = {f"branchwise/{path.relative_to(root)}" for path in sources}
    assert {name for name in wheel if name.endswith(".py")} == modules
    assert "branchwise/py.typed" in wheel


@pytest.mark.slow
def test_the_shipped_models_are_in_it(wheel: list[str], root: Path) -> None:
    models = root / "evals" / "reference" / "models"
    files = {f"branchwise/{path.relative_to(root)}" for path in models.rglob("*") if path.is_file()}
    assert files
    assert files <= set(wheel)


@pytest.mark.slow
def test_the_parts_of_the_report_are_in_it(wheel: list[str]) -> None:
    parts = {
        f"branchwise/evals/report/assets/{name}" for name in ("page.html", "page.css", "page.js", "tree.js")
    }
    assert parts <= set(wheel)


@pytest.mark.slow
def test_the_parts_of_the_tree_page_are_in_it(wheel: list[str], root: Path) -> None:
    parts = {f"branchwise/{path.relative_to(root)}" for path in (root / "reasoning/assets").iterdir()}
    assert {"tree.html", "tree.css"} <= {part.rpartition("/")[2] for part in parts}
    assert parts <= set(wheel)


@pytest.mark.slow
def test_the_recipes_are_in_it(wheel: list[str], root: Path) -> None:
    recipes = {f"branchwise/{path.relative_to(root)}" for path in (root / "evals/recipes").glob("*.toml")}
    assert recipes
    assert recipes <= set(wheel)
