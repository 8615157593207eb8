"""Saved rows as a Markdown table."""

from collections.abc import Iterable, Sequence

from .report import number
from .result import Measured, Result, Row

HEADER = ("work", "branchwise", "peers", "bound", "machine, date")


def render_table(rows: Iterable[Row]) -> str:
    """The latest row of each work (its sizes, model, type and threads), in the order in which they first
    came."""
    latest: dict[str, Row] = {}
    for row in rows:
        latest[_work(row.result)] = row
    lines = [HEADER, ("---",) * len(HEADER), *(_cells(work, row) for work, row in latest.items())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _work(result: Result) -> str:
    work = result.work
    sizes = ", ".join(f"{name} {value:g}" for name, value in work.sizes.items())
    mode = ", deterministic" if work.deterministic else ""
    return f"{work.bench}: {sizes}; {work.model} {work.dtype}{mode}, {work.threads} threads"


def _cells(work: str, row: Row) -> Sequence[str]:
    result = row.result
    bound = "" if result.bound_tokens_per_s is None else f"{number(result.bound_tokens_per_s)} tokens_per_s"
    peers = "<br>".join(_peer(peer, result.work.figure) for peer in result.peers)
    machine = row.machine
    place = f"{machine.cpu}, {machine.cores} cores, torch {machine.versions['torch']}, {row.date[:10]}"
    return (work, _figures(result.ours), peers, bound, place)


def _peer(peer: Measured, figure: str) -> str:
    value = peer.figures.get(figure)
    compared = "" if value is None else f" {number(value)} {figure}"
    ratio = "" if peer.ratio is None else f", ratio **{peer.ratio:.2f}**"
    return (
        f"{peer.version if peer.name in peer.version else f'{peer.name} ({peer.version})'}{compared}{ratio}"
    )


def _figures(measured: Measured) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in measured.figures.items())
