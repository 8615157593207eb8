"""Options that commands take together, from one declaration."""

from typing import Annotated

import msgspec
import pytest
import typer
from branchwise.reasoning.cli.groups import given_options, takes_groups
from typer.main import get_command
from typer.testing import CliRunner


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    width: Annotated[int, typer.Option(help="How wide.")] = 3
    named: Annotated[list[str] | None, typer.Option("--name", help="What it is called.")] = None


def app(own: Sizes = Sizes()) -> typer.Typer:  # noqa: B008  # frozen
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @made.command()
    @takes_groups
    def show(*, ctx: typer.Context, text: Annotated[str, typer.Argument()], sizes: Sizes = own) -> None:
        """Show it."""
        typer.echo(f"{text} {sizes.width} {sizes.named} {sorted(given_options(ctx))}")

    return made


def run(app: typer.Typer, *arguments: str) -> str:
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    return ran.output.strip()


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("x",), "x 3 None ['text']"),
        (("--width", "3", "x"), "x 3 None ['text', 'width']"),
        (("x", "--name", "a", "--name", "b"), "x 3 ['a', 'b'] ['named', 'text']"),
    ],
)
def test_a_command_gets_its_group_and_what_of_it_was_given(arguments: tuple[str, ...], shown: str) -> None:
    assert run(app(), *arguments) == shown


def test_a_command_may_have_a_default_of_its_own() -> None:
    narrow = app(Sizes(width=1))
    assert run(narrow, "x") == "x 1 None ['text']"
    assert run(narrow, "x", "--width", "3") == "x 3 None ['text', 'width']"


def test_help_has_the_groups_options_and_the_commands_words() -> None:
    command = get_command(app())
    assert command.help == "Show it."
    told = {option.name: getattr(option, "help", None) for option in command.params}
    assert told["width"] == "How wide."
    assert told["named"] == "What it is called."
