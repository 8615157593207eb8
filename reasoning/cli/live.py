"""The live view of a search on a terminal: branches, scores, and what the budget has left."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..budget import Budget
from ..events import BranchOpened, Ended, Event, Noted, Offered, Pruned, Scored, StepDone

SHOWN = 14
REFRESH_PER_SECOND = 8


class BranchRow(msgspec.Struct):
    """What is known of one branch. `touched` orders the rows by the last event."""

    id: str
    state: str = "live"
    steps: int = 0
    tokens: int = 0
    score: float | None = None
    answer: str | None = None
    last: str = ""
    touched: int = 0


class SearchView:
    """Folds the events of one search into rows, and renders them."""

    def __init__(self, title: str, budget: Budget) -> None:
        self.title = title
        self.budget = budget
        self.rows: dict[str, BranchRow] = {}
        self.incumbent: str | None = None
        self.incumbent_answer: str | None = None
        self.notes: list[str] = []
        self.tokens_spent = 0
        self.ended: str | None = None
        self._events = 0
        self._started = monotonic()

    def receive(self, event: Event) -> None:
        """Take one event in; called on the event loop while another thread may render."""
        self._events += 1
        self.tokens_spent = max(self.tokens_spent, event.tokens_spent)
        match event:
            case BranchOpened():
                self._row(event.branch)
            case StepDone():
                row = self._row(event.branch)
                row.steps += 1
                row.tokens += event.tokens
                row.last = event.text
                row.answer = event.answer or row.answer
            case Scored():
                row = self._row(event.branch)
                row.score = event.value
                if event.verified is not None:
                    row.state = "verified" if event.verified else "refuted"
            case Pruned():
                row = self._row(event.branch)
                row.state = event.reason if row.state == "live" else row.state
            case Offered():
                row = self._row(event.branch)
                row.answer = event.answer or row.answer
                row.state = "offered" if row.state == "live" else row.state
                self.incumbent, self.incumbent_answer = event.incumbent, event.incumbent_answer
            case Noted():
                self.notes.append(event.text)
            case Ended():
                self.ended = str(event.reason)
            case _:
                pass

    def shown(self) -> list[BranchRow]:
        """The incumbent, then live branches, then the others; the last touched first."""
        rows = list(self.rows.values())
        rows.sort(key=lambda row: (row.id != self.incumbent, row.state != "live", -row.touched))
        return rows[:SHOWN]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Group(
            Text(self.title, style="bold", overflow="ellipsis", no_wrap=True), self._meter(), self._table()
        )
        for note in self.notes[-2:]:
            yield Text(note, style="yellow", overflow="ellipsis", no_wrap=True)

    def _best(self) -> str | None:
        # The solution will not give an answer that a sound check refuted: nor does the view.
        row = self.rows.get(self.incumbent or "")
        return None if row is None or row.state == "refuted" else self.incumbent_answer

    def _row(self, branch: str) -> BranchRow:
        row = self.rows.setdefault(branch, BranchRow(branch))
        row.touched = self._events
        return row

    def _meter(self) -> Table:
        line = Table.grid(padding=(0, 2))
        seconds = f"{monotonic() - self._started:.1f} s"
        if self.budget.seconds is not None:
            seconds += f" of {self.budget.seconds:g}"
        tokens = f"{self.tokens_spent} tokens"
        best = "no answer yet" if (answer := self._best()) is None else f"best: {answer}"
        if self.budget.tokens is None:
            line.add_row(tokens, seconds, best)
        else:
            bar = ProgressBar(total=self.budget.tokens, completed=self.tokens_spent, width=30)
            line.add_row(bar, f"{tokens} of {self.budget.tokens}", seconds, best)
        return line

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
        for name in ("branch", "state"):
            table.add_column(name, no_wrap=True)
        for name in ("steps", "tokens", "score"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("answer", no_wrap=True, overflow="ellipsis")
        table.add_column("last step", ratio=1, no_wrap=True, overflow="ellipsis")
        for row in self.shown():
            score = "" if row.score is None else f"{row.score:.3f}"
            cells = (
                row.id,
                row.state,
                str(row.steps),
                str(row.tokens),
                score,
                row.answer or "",
                _one_line(row.last),
            )
            style = (
                "bold green"
                if row.id == self.incumbent
                else "dim"
                if row.state not in ("live", "offered")
                else ""
            )
            table.add_row(*(Text(cell) for cell in cells), style=style)
        hidden = len(self.rows) - SHOWN
        if hidden > 0:
            table.add_row(Text(f"+ {hidden} more", style="dim"))
        return table


@contextmanager
def shown_live(view: SearchView, console: Console) -> Iterator[None]:
    """Draw the view while the block runs and wipe it at the end: the solution is printed in its place."""
    with Live(view, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True):
        yield


def _one_line(text: str) -> str:
    return " ".join(text.split())
