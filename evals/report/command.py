"""`branchwise view`: the report of a run."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ...reasoning.cli.options import Verbose, whole

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def view(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The --out folder of a run.")],
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    samples_mb: Annotated[
        int,
        typer.Option(
            "--samples-mb",
            parser=whole("--samples-mb", least=1, most=1024),
            metavar="N",
            help="Most megabytes of samples and search trees in the page.",
        ),
    ] = 16,
    verbose: Verbose = 0,
) -> None:
    """Write the report of a run anew, also while it is running: report.html, plots and tables."""
    from ..runs.store import Store
    from .write import write_report

    with Store.read(Path(folder).expanduser()) as store:
        _, paths = write_report(store, store.folder, samples_mb * 2**20)
    for path in paths:
        typer.echo(path)
    if open_page and not webbrowser.open(paths[0].resolve().as_uri()):
        typer.echo(f"--open: no browser was found; open {paths[0]} yourself", err=True)
