"""What lies where, what is packaged, and what the two commands are."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

LONGEST_FILE = 400
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_the_package_list_names_every_folder(
    root: Path, floors: dict[str, int], pyproject: dict[str, Any]
) -> None:
    folders = {path.parent for folder in floors for path in (root / folder).rglob("*.py")}
    found = {"branchwise", *(".".join(("branchwise", *folder.relative_to(root).parts)) for folder in folders)}
    assert found == set(pyproject["tool"]["setuptools"]["packages"])


def test_every_package_folder_is_a_package(root: Path, floors: dict[str, int]) -> None:
    folders = {path.parent for folder in floors for path in (root / folder).rglob("*.py")}
    assert [
        str(folder.relative_to(root)) for folder in folders if not (folder / "__init__.py").is_file()
    ] == []


def test_no_other_module_lies_at_the_root(root: Path) -> None:
    assert [path.name for path in root.glob("*.py")] == ["__init__.py"]


def test_tests_see_the_package_as_it_is_installed(root: Path) -> None:
    """And not what a build left in the working directory, however they were started."""
    assert root not in {Path(entry).resolve() for entry in sys.path}
    found = {Path(str(each.locate_file(""))).resolve() for each in distributions(name="branchwise")}
    assert root not in found


def test_no_file_holds_two_nouns(root: Path, sources: list[Path]) -> None:
    long = [f"{path.relative_to(root)}: {n}" for path in sources if (n := line_count(path)) > LONGEST_FILE]
    assert not long, f"over {LONGEST_FILE} lines: {long}"


def test_the_two_commands(root: Path) -> None:
    readme = (root / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
    assert "make test" in (root / ".ci" / "run").read_text()


def entry_points() -> list[tuple[str, str, str]]:
    import tomllib

    project = tomllib.loads(PYPROJECT.read_text())["project"]
    groups = {"branchwise.scripts": project["scripts"], **project["entry-points"]}
    return [(group, name, value) for group, points in groups.items() for name, value in points.items()]


@pytest.mark.parametrize(("group", "name", "value"), entry_points())
def test_each_entry_point_loads(group: str, name: str, value: str) -> None:
    module, _, attribute = value.partition(":")
    if not group.startswith("branchwise."):
        pytest.importorskip(group, reason=f"the package {group} is not installed: it is an extra")
    assert callable(getattr(import_module(module), attribute))


def test_the_facade_is_light() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import branchwise; "
        "took = time.perf_counter() - start; "
        "heavy = {'torch', 'transformers', 'numpy', 'networkx'} & set(sys.modules); print(took, *heavy)"
    )
    # The best of three: the machine may be busy with other work, the import is not.
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(3)
    ]
    assert runs[0][1:] == []
    assert min(float(run[0]) for run in runs) < 0.3


def test_the_facade_offers_what_it_lists() -> None:
    branchwise = import_module("branchwise")
    for name in branchwise.__all__:
        assert getattr(branchwise, name) is not None
    assert set(branchwise.__all__) <= set(dir(branchwise))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = branchwise.nonsense


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())
