"""Saved rows as a Markdown table."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...engine.errors import UsageError
from .report import number
from .result import Measured, Result, Row

BEGIN, END = "<!-- begin: branchwise bench table -->", "<!-- end: branchwise bench table -->"
HEADER = ("work", "branchwise", "peers", "bound", "machine, date")


def render_table(rows: Iterable[Row]) -> str:
    """The latest row of each work (its sizes, model, type and threads) with each peer's latest figures, in
    the order in which they first came. A peer's ratio is that of its own run."""
    latest: dict[str, Row] = {}
    peers: dict[str, dict[str, Measured]] = {}
    for row in rows:
        work = _work(row.result)
        latest[work] = row
        peers.setdefault(work, {}).update({peer.name: peer for peer in row.result.peers})
    cells = (_cells(work, row, peers[work].values()) for work, row in latest.items())
    lines = [HEADER, ("---",) * len(HEADER), *cells]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def put_table(table: str, path: Path) -> None:
    """Write the table between the two markers in the file; `UsageError` where it does not have them, or
    cannot be read or written."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8; give a Markdown file") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{path} has no place for the table: it needs the lines {BEGIN} and {END}")
    try:
        path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror})") from None


def _work(result: Result) -> str:
    work = result.work
    sizes = ", ".join(f"{name} {value:g}" for name, value in work.sizes.items())
    mode = ", deterministic" if work.deterministic else ""
    return f"{work.title}: {sizes}; {work.model} {work.dtype}{mode}, {work.threads} threads"


def _cells(work: str, row: Row, measured: Iterable[Measured]) -> Sequence[str]:
    result = row.result
    bound = "" if result.bound_tokens_per_s is None else f"{number(result.bound_tokens_per_s)} tokens_per_s"
    peers = "<br>".join(_peer(peer, result.work.figure) for peer in measured)
    machine = row.machine
    torch = machine.versions.get("torch", "unknown")
    place = f"{machine.cpu}, {machine.cores} cores, torch {torch}, {row.date[:10]}"
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
