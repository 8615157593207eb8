"""The options that commands share, each declared once."""

from typing import Annotated

import typer

from .session import set_verbosity

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        is_eager=True,
        show_default=False,
        callback=set_verbosity,
        help="Log what happens (twice: everything) and show tracebacks.",
    ),
]

Model = Annotated[
    str,
    typer.Option("--model", metavar="M", help="reference, a folder, a .gguf file, or a Hub id (owner/name)."),
]
JsonOut = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
