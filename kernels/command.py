"""`branchwise kernels`: what can be said of the kernels without a GPU."""

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from .compile_check import Checked

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

_COLUMNS = (
    ("build", 40),
    ("gpu", 7),
    ("regs", 5),
    ("shared", 7),
    ("prog/SM", 8),
    ("spills", 7),
    ("HGMMA", 6),
    ("HMMA", 5),
    ("TMA", 4),
    ("async", 8),
    ("loads", 8),
    ("instr", 6),
)


@app.callback()
def kernels() -> None:
    """The Triton kernels, without a GPU."""


@app.command()
def check(
    only: Annotated[
        str | None, typer.Option("--only", help="Builds whose name contains this.", show_default="all")
    ] = None,
    arch: Annotated[
        list[int] | None,
        typer.Option(
            "--arch", help="80, 90 or 100; may be repeated.", show_default="those of each build, and 100"
        ),
    ] = None,
) -> None:
    """Compile every kernel and compare registers, shared memory, spills and loads with what is expected.

    Columns: registers per thread, bytes of shared memory, programs per multiprocessor, spills, then
    instructions: products of warp groups and of warps, TMA loads, asynchronous and plain loads (those of 128
    bits / all), all of them. Status 1: a fault, one line each; 2: nothing can be compiled here.
    """
    from .compile_check import ARCHITECTURES, CheckImpossible, run_check

    if unknown := [each for each in arch or () if each not in ARCHITECTURES]:
        _stop(f"--arch {unknown[0]}: not one of {', '.join(map(str, ARCHITECTURES))}", 2)
    try:
        report = run_check(only, arch or (), show=_Table().add)
    except CheckImpossible as error:
        _stop(str(error), 2)
    for remark in report.remarks:
        typer.echo(f"branchwise: {remark} (no ceilings are recorded for it: told, not counted)", err=True)
    faults = report.all_faults()
    for fault in faults:
        typer.echo(f"branchwise: {fault}", err=True)
    typer.echo(report.summary())
    if faults:
        raise typer.Exit(1)


class _Table:
    """Prints a row as soon as there is one, and the head before the first."""

    def __init__(self) -> None:
        self._has_head = False

    def add(self, checked: "Checked") -> None:
        if not self._has_head:
            typer.echo(_line([name for name, _ in _COLUMNS]))
            self._has_head = True
        typer.echo(_row(checked))


def _stop(message: str, status: int) -> NoReturn:
    typer.echo(f"branchwise: {message}", err=True)
    raise typer.Exit(status)


def _row(checked: "Checked") -> str:
    code = checked.code
    if code is None:
        return _line([checked.name, f"sm_{checked.architecture}", "does not compile"])
    return _line(
        [
            checked.name,
            f"sm_{checked.architecture}",
            str(code.registers),
            str(code.shared_bytes),
            str(code.programs(checked.architecture)),
            "yes" if code.spills else "no",
            str(code.warp_group_products),
            str(code.warp_products),
            str(code.bulk_loads),
            f"{code.wide_async_loads}/{code.async_loads}",
            f"{code.wide_loads}/{code.loads}",
            str(code.instructions),
        ]
    )


def _line(cells: list[str]) -> str:
    first, *others = cells
    widths = [width for _, width in _COLUMNS[1:]]
    padded = [cell.rjust(width) for cell, width in zip(others, widths, strict=False)]
    return " ".join([first.ljust(_COLUMNS[0][1]), *padded])
