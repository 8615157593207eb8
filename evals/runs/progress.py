"""How far a run is: rate, time left, cost and accuracy so far; and what it will come to."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from ...reasoning.solution import Reason
from .plan import Cell, Plan, Task
from .record import Record

LINE_EVERY_S = 10.0
REFRESH_PER_SECOND = 4


class Tally(msgspec.Struct):
    """Sums over the records of one cell."""

    done: int = 0
    correct: int = 0
    censored: int = 0
    failed: int = 0
    tokens: int = 0
    tokens_known: int = 0

    @property
    def accuracy(self) -> float:
        return self.correct / self.done if self.done else 0.0

    @property
    def mean_tokens(self) -> float | None:
        return self.tokens / self.tokens_known if self.tokens_known else None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What is still to come: tokens, None where nothing tells; and seconds at the present rate."""

    tokens: float | None
    seconds: float | None


class Progress:
    """Counts records as they come. `now` gives seconds."""

    def __init__(
        self, plan: Plan, missing: Iterable[Task], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.plan = plan
        self.tallies: dict[Cell, Tally] = defaultdict(Tally)
        self.left: dict[Cell, int] = defaultdict(int)
        for task in missing:
            self.left[task.cell] += 1
        self.fresh = 0
        self.fresh_tokens = 0
        self._now = now
        self._started_s = now()

    def recall(self, record: Record) -> None:
        """A record of an earlier launch."""
        self._count(record)

    def receive(self, record: Record) -> None:
        """A record that was made now."""
        self._count(record)
        self.left[record.cell] -= 1
        self.fresh += 1
        self.fresh_tokens += record.usage.tokens or 0

    def _count(self, record: Record) -> None:
        tally = self.tallies[record.cell]
        tally.done += 1
        tally.correct += record.correct is True
        tally.censored += record.censored
        tally.failed += record.reason == Reason.FAILED
        if record.usage.tokens is not None:
            tally.tokens += record.usage.tokens
            tally.tokens_known += 1

    @property
    def done(self) -> int:
        return sum(tally.done for tally in self.tallies.values())

    @property
    def tokens(self) -> int:
        return sum(tally.tokens for tally in self.tallies.values())

    @property
    def elapsed_s(self) -> float:
        return self._now() - self._started_s

    @property
    def rate(self) -> float:
        """Samples per second of this launch."""
        return self.fresh / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def expected(self) -> Expected:
        """What the missing tasks will take: each cell's mean tokens so far, at the present tokens per
        second; by samples per second where tokens are not known."""
        left = {cell: count for cell, count in self.left.items() if count}
        if not left:
            return Expected(tokens=0.0, seconds=0.0)
        means = {cell: self.tallies[cell].mean_tokens for cell in left}
        if all(mean is not None for mean in means.values()):
            tokens = sum(count * (means[cell] or 0.0) for cell, count in left.items())
            rate = self.fresh_tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0
            return Expected(tokens=tokens, seconds=tokens / rate if rate else None)
        return Expected(tokens=None, seconds=sum(left.values()) / self.rate if self.rate else None)

    def line(self) -> str:
        """One line of plain text."""
        expected = self.expected()
        parts = [f"{self.done}/{self.plan.size} samples", f"{self.rate:.1f}/s"]
        parts.append(f"{readable_count(self.tokens)} tokens")
        if expected.seconds is not None:
            parts.append(f"{readable_s(expected.seconds)} left")
        if failed := sum(tally.failed for tally in self.tallies.values()):
            parts.append(f"{failed} failed")
        compared = [self.tallies[cell] for cell in self.plan.cells if self.tallies[cell].done]
        if compared:
            accuracies = [tally.accuracy for tally in compared]
            parts.append(f"accuracy {min(accuracies):.1%} to {max(accuracies):.1%}")
        return ", ".join(parts)

    def __rich__(self) -> Table:
        frame = Table.grid(padding=(0, 1))
        frame.add_row(ProgressBar(total=self.plan.size, completed=self.done, width=40), self.line())
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name in ("strategy", "budget", "done", "accuracy", "censored", "tokens each"):
            table.add_column(name, justify="left" if name in ("strategy", "budget") else "right")
        for cell in self.plan.cells:
            tally = self.tallies[cell]
            mean = tally.mean_tokens
            table.add_row(
                cell.strategy,
                cell.budget,
                str(tally.done),
                f"{tally.accuracy:.1%}" if tally.done else "",
                str(tally.censored),
                "" if mean is None else f"{mean:.0f}",
            )
        whole = Table.grid()
        whole.add_row(frame)
        whole.add_row(table)
        return whole


@contextmanager
def shown(progress: Progress, console: Console) -> Iterator[Callable[[Record], None]]:
    """Show the progress while the block runs: live on a terminal, a line every few seconds elsewhere. Yields
    what is to hear of each record."""
    if console.is_terminal:
        with Live(progress, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True):
            yield progress.receive
        return
    printed_s = progress.elapsed_s

    def receive(record: Record) -> None:
        nonlocal printed_s
        progress.receive(record)
        if progress.elapsed_s - printed_s >= LINE_EVERY_S:
            printed_s = progress.elapsed_s
            console.print(progress.line(), highlight=False, soft_wrap=True)

    yield receive


def plan_line(plan: Plan, missing: int) -> str:
    """What will be done, and the most that it may cost."""
    recipe, limits = plan.recipe, [cell.tokens for cell in plan.cells]
    parts = [
        f"{len(plan.samples)} problems",
        f"{len(recipe.strategies)} strategies",
        f"{len(recipe.budgets)} budgets",
        f"{recipe.seeds} seeds",
    ]
    line = f"{' x '.join(parts)}: {plan.size} samples"
    if plan.difficulty is not None:
        line += f", {len(plan.samples)} of them for difficulty"
    if missing < plan.size:
        line += f", {missing} to do"
    if all(limit is not None for limit in limits) and limits:
        most = sum(limit or 0 for limit in limits) * len(plan.samples) * recipe.seeds
        line += f"; at most {readable_count(most)} tokens by their budgets"
    return line


def estimate_line(progress: Progress) -> str:
    """What the rest will come to, by what was measured so far."""
    expected = progress.expected()
    parts = []
    if expected.tokens is not None:
        parts.append(f"{readable_count(expected.tokens)} tokens")
    if expected.seconds is not None:
        parts.append(readable_s(expected.seconds))
    return f"estimate for the rest: {', '.join(parts)} (measured on {progress.done} samples)"


def readable_count(count: float) -> str:
    """1234567 to "1.23M"."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.0f}"


def readable_s(seconds: float) -> str:
    """Seconds as "45 s", "3 min 20 s" or "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
