"""`branchwise summary`: what the records of a run say."""

from typing import Annotated

import typer

from ...engine.user_path import user_path
from ...reasoning.cli.options import JsonOut, Verbose

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def summary(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The --out folder of a run.")],
    json: JsonOut = False,
    verbose: Verbose = 0,
) -> None:
    """Summarise the records of a run, also while it is running."""
    from ...reasoning.cli.render import encode
    from ..runs.store import Store
    from .export import to_markdown
    from .summarise import summarise

    with Store.read(user_path(folder)) as store:
        made = summarise(store)
    typer.echo(encode(made) if json else to_markdown(made))
