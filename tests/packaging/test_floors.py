"""No import goes up a floor: static, lazy and string imports alike."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOTTED = re.compile(r"branchwise\.(kernels|engine|verifiers|strategies|reasoning|evals|serve)(\.\w+)*(:\w+)?")
# Entry point groups look like modules and import nothing: they are how a higher floor reaches a lower one.
GROUPS = {f"branchwise.{name}" for name in ("commands", "models", "strategies", "tasks", "verifiers")}
IMPORTERS = {"import_module", "__import__", "find_spec"}


def test_no_import_goes_up_a_floor(root: Path, floors: dict[str, int], sources: list[Path]) -> None:
    faults = [
        f"{path.relative_to(root)}:{line} imports {module}"
        for path in sources
        for line, module in imported_modules(path, root)
        if goes_up(path.relative_to(root).parts[0], module, floors)
    ]
    assert not faults, "\n".join(faults)


def test_every_import_inside_the_package_is_relative(root: Path, sources: list[Path]) -> None:
    faults = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").startswith("branchwise")
        )
        or (isinstance(node, ast.Import) and any(alias.name.startswith("branchwise") for alias in node.names))
    ]
    assert not faults, "\n".join(faults)


def test_tasks_run_on_anyio_alone(root: Path, sources: list[Path]) -> None:
    faults = [
        f"{path.relative_to(root)}:{line}"
        for path in sources
        for line, module in imported_modules(path, root)
        if module.partition(".")[0] in ("asyncio", "trio")
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("import branchwise.evals.demo", "branchwise.evals.demo"),
        ("from branchwise import evals", "branchwise.evals"),
        ("from ..reasoning.budget import Budget", "branchwise.reasoning.budget"),
        ("def f():\n    from .. import evals", "branchwise.evals"),
        (
            "from importlib import import_module\nimport_module('..evals.demo', __package__)",
            "branchwise.evals.demo",
        ),
        ("TARGET = 'branchwise.evals.demo:app'", "branchwise.evals.demo"),
    ],
)
def test_the_import_reader_sees_every_form(tmp_path: Path, code: str, module: str) -> None:
    path = tmp_path / "engine" / "probe.py"
    path.parent.mkdir()
    path.write_text(code)
    assert module in [name for _, name in imported_modules(path, tmp_path)]


@pytest.mark.parametrize(
    ("folder", "module", "up"),
    [
        ("engine", "branchwise.kernels.noise", False),
        ("engine", "branchwise.engine.kv", False),
        ("engine", "branchwise.verifiers.base", True),
        ("engine", "branchwise.solve", True),
        ("engine", "evals", True),
        ("evals", "branchwise.reasoning", False),
        ("evals", "branchwise.serve", True),
        ("serve", "branchwise.reasoning", False),
        ("__init__.py", "branchwise.evals", False),
        ("kernels", "torch.nn", False),
    ],
)
def test_the_floors_of_the_design(folder: str, module: str, up: bool, floors: dict[str, int]) -> None:
    assert goes_up(folder, module, floors) is up


def goes_up(folder: str, module: str, floors: dict[str, int]) -> bool:
    """Whether a module of `folder` may not import `module`; top-level names of others are faults too."""
    first, *rest = module.split(".")
    if first in floors:
        return True
    if first != "branchwise" or folder not in floors:
        return False
    # A name at the root is the facade's, which stands above every floor.
    return floors.get(rest[0] if rest else "", len(floors) + 1) > floors[folder]


def imported_modules(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of everything that `path` imports; relative names are resolved to `branchwise...`."""
    package = ["branchwise", *path.relative_to(root).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        for name in node_imports(node, package):
            yield getattr(node, "lineno", 0), name


def node_imports(node: ast.AST, package: list[str]) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            module = resolved(node.level, node.module, package)
            # `from .. import engine` imports a folder, not a name of the root.
            return [f"{module}.{alias.name}" for alias in node.names] if module == "branchwise" else [module]
        case ast.Call(func=called, args=[ast.Constant(value=str(name)), *_]) if (
            called_name(called) in IMPORTERS
        ):
            bare = name.lstrip(".")
            return [resolved(len(name) - len(bare), bare, package)]
        case ast.Constant(value=str(text)) if DOTTED.fullmatch(text) and text not in GROUPS:
            return [text.partition(":")[0]]
        case _:
            return []


def called_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def resolved(level: int, module: str | None, package: list[str]) -> str:
    if level == 0:
        return module or ""
    base = package[: len(package) - level + 1]
    return ".".join([*base, module] if module else base)
