"""The commands that other packages and higher floors add, by the entry point group `branchwise.commands`.

The value of an entry point is a `typer.Typer` app, made with `add_completion=False`: one command in it
becomes `branchwise NAME`, several become `branchwise NAME COMMAND`. Its module must be cheap to import: it is
loaded for `branchwise --help` too, so that the help shows its first line.
"""

from importlib.metadata import EntryPoint
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ...engine.errors import BranchwiseError, UsageError
from ...engine.plugins import registered
from .nearest import hint

GROUP = "branchwise.commands"


class CommandGroup(TyperGroup):
    """The built-in commands, then those of the entry points, imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands, *(name for name in registered(GROUP) if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (point := registered(GROUP).get(cmd_name)) is not None:
            self.commands[cmd_name] = _load(point)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise UsageError(f"command {name!r}: no such command; {hint(name, self.list_commands(ctx))}")
        command = super().resolve_command(ctx, args)
        if isinstance(broken := command[1], BrokenCommand):
            raise broken.error
        return command


class BrokenCommand(TyperGroup):
    """Stands in for a command whose module does not import: one package cannot break the others."""

    def __init__(self, name: str, error: BranchwiseError) -> None:
        super().__init__(name=name, help=f"Not usable: {error}")
        self.error = error


def _load(point: EntryPoint) -> Any:
    try:
        app = point.load()
        if not isinstance(app, typer.Typer):
            raise TypeError(f"{point.value} is not a typer.Typer")
        command = get_command(app)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return BrokenCommand(point.name, BranchwiseError(f"command {point.name!r} does not load ({reason})"))
    command.name = point.name
    return command
