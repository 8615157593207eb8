"""`branchwise view`: the report of a run, or the tree of saved searches."""

import json
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...reasoning.cli.options import Verbose, count

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def view(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR | GRAPH.json...",
            help="The --out folder of a run, or files that `solve --graph` wrote, shown side by side.",
        ),
    ],
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    samples_mb: Annotated[
        int, count("--samples-mb", "Most megabytes of samples and search trees in the page.", most=1024)
    ] = 16,
    verbose: Verbose = 0,
) -> None:
    """Write the report of a run anew, also while it is running: report.html, plots and tables. Of saved
    graphs, write their trees as one page: GRAPH.html beside the first."""
    found = [user_path(path) for path in paths]
    if any(path.suffix == ".json" for path in found):
        pages = [_write_trees(found)]
    elif len(found) == 1:
        pages = _write_report(found[0], samples_mb)
    else:
        raise UsageError("view: give one folder of a run, or files that end in .json")
    for path in pages:
        typer.echo(path)
    if open_page and not webbrowser.open(pages[0].resolve().as_uri()):
        typer.echo(f"--open: no browser was found; open {pages[0]} yourself", err=True)


def _write_report(folder: Path, samples_mb: int) -> Sequence[Path]:
    from ..runs.store import Store
    from .write import write_report

    with Store.read(folder) as store:
        _, paths = write_report(store, store.folder, samples_mb * 2**20)
    return paths


def _write_trees(files: Sequence[Path]) -> Path:
    """The page of saved graphs. Raises `UsageError` for a file that is none, or that cannot be written."""
    from ...reasoning.treepage import saved_page

    names = _names(files)
    page = saved_page({name: _read_graph(path) for name, path in zip(names, files, strict=True)})
    target = files[0].with_suffix(".html")
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from error
    return target


def _names(files: Sequence[Path]) -> list[str]:
    """The files' stems, or their whole paths where two have the same."""
    stems = [path.stem for path in files]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in files]


def _read_graph(path: Path) -> dict[str, Any]:
    try:
        graph = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a JSON file ({error})") from error
    if not _is_graph(graph):
        raise UsageError(f"{path}: not a search graph; give a file that `branchwise solve --graph` wrote")
    return graph


def _is_graph(graph: Any) -> bool:
    """Whether it has what the page reads: named steps with branch and text, and links between them."""
    if not isinstance(graph, dict) or not graph.get("nodes"):
        return False
    try:
        ids = {node["id"] for node in graph["nodes"] if isinstance(node["branch"] + node["text"], str)}
        return all(link["source"] in ids and link["target"] in ids for link in graph["links"])
    except (KeyError, TypeError):
        return False
