"""A summary as JSON, CSV and Markdown."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ..statistics.intervals import Estimate
from .files import write_whole
from .forcing import HEADS, forcing_cells
from .tables import (
    CellRow,
    Difficulty,
    EqualCompute,
    FailureRow,
    PairedTest,
    ScoringRow,
    Summary,
    VerifierRow,
)

_COSTS = ("flops", "tokens", "seconds", "kv", "kv_held", "kv_unshared")
_SHARES = ("censored", "truncated", "abstained", "failed", "ungraded")


def write_summary(summary: Summary, folder: Path) -> list[Path]:
    """Write summary.json, summary.csv and summary.md; returns their paths."""
    texts = {
        "summary.json": msgspec.json.format(msgspec.json.encode(summary)).decode() + "\n",
        "summary.csv": to_csv(summary),
        "summary.md": to_markdown(summary),
    }
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]


def to_csv(summary: Summary) -> str:
    """One line per strategy and budget."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    estimates = ("accuracy", *_COSTS)
    heads = [f"{name}{end}" for name in estimates for end in ("", "_low", "_high")]
    writer.writerow(
        ["suite", "model", "strategy", "budget", "problems", "samples", *heads, *_SHARES, "oracle"]
    )
    for row in summary.cells:
        figures = [value for name in estimates for value in _ends(getattr(row, name))]
        shares = [getattr(row, name) for name in _SHARES]
        writer.writerow(
            [
                summary.suite,
                summary.model,
                row.strategy,
                row.budget,
                row.problems,
                row.samples,
                *figures,
                *shares,
                row.oracle,
            ]
        )
    return out.getvalue()


def to_markdown(summary: Summary) -> str:
    """All tables, for people."""
    partial = (
        "" if summary.done == summary.planned else f" Partial: {summary.planned - summary.done} missing."
    )
    lines = [
        f"# {summary.suite}, {summary.model}",
        "",
        f"{summary.done} of {summary.planned} samples.{partial} Intervals are 95 %, with problems as units.",
        "",
        *_table(
            (
                "strategy",
                "budget",
                "problems",
                "accuracy",
                "flops",
                "tokens",
                "seconds",
                "censored",
                "truncated",
            ),
            (_cell(row) for row in summary.cells),
        ),
    ]
    for lint in summary.lints:
        lines += ["", f"**{lint.level}: {lint.code}.** {lint.text}"]
    if summary.tests:
        lines += ["", f"## Against {summary.tests[0].baseline}, paired by problem", ""]
        heads = ("strategy", "budget", "difference", "p", "p (Holm)", "test", "problems to see 2 points")
        lines += _table(heads, map(_test, summary.tests))
    if summary.equal_compute is not None and summary.equal_compute.rows:
        lines += _equal_compute(summary.equal_compute)
    for split in summary.difficulty:
        lines += _difficulty(split)
    if summary.failures:
        lines += _failures(summary.failures)
    if summary.forcing:
        lines += ["", "## Control of thinking", "", *_table(HEADS, forcing_cells(summary.forcing))]
    if summary.verifiers:
        lines += _verifiers(summary.verifiers)
    if summary.scoring:
        lines += _scoring(summary.scoring)
    if summary.coverage:
        lines += ["", "## pass@k of the base samples (oracle)", ""]
        lines += _table(("k", "pass@k"), ((str(c.k), percent(c.pass_at_k)) for c in summary.coverage))
    return "\n".join(lines) + "\n"


def percent(estimate: Estimate | None) -> str:
    """`55.0 % (49.3 to 60.5)`."""
    return _with_ends(estimate, lambda value: f"{100 * value:.1f}", unit=" %")


def points(estimate: Estimate | None) -> str:
    """A difference of rates: `+5.0 points (-1.2 to +11.2)`."""
    return _with_ends(estimate, lambda value: f"{100 * value:+.1f}", unit=" points")


def quantity(estimate: Estimate | None) -> str:
    """`123 (110 to 136)`, in 3 digits."""
    return _with_ends(estimate, lambda value: f"{value:.3g}", unit="")


def _with_ends(estimate: Estimate | None, written: Callable[[float], str], *, unit: str) -> str:
    if estimate is None:
        return "not known"
    if estimate.low is None or estimate.high is None:
        return f"{written(estimate.value)}{unit}"
    return f"{written(estimate.value)}{unit} ({written(estimate.low)} to {written(estimate.high)})"


def _cell(row: CellRow) -> Sequence[str]:
    mark = " (oracle)" if row.oracle else ""
    return (
        f"{row.strategy}{mark}",
        row.budget,
        str(row.problems),
        percent(row.accuracy),
        quantity(row.flops),
        quantity(row.tokens),
        quantity(row.seconds),
        f"{row.censored:.1%}",
        f"{row.truncated:.1%}",
    )


def _test(test: PairedTest) -> Sequence[str]:
    comparison = test.comparison
    return (
        test.strategy,
        test.budget,
        points(comparison.difference),
        _p(comparison.p),
        _p(test.p_holm),
        comparison.test,
        "not known" if test.problems_for_2_points is None else str(test.problems_for_2_points),
    )


def _equal_compute(table: EqualCompute) -> Iterator[str]:
    yield from ("", f"## At equal compute ({table.axis} per problem)", "")
    heads = (table.axis, "strategy", "accuracy", "against", "difference", "p (Holm)", "between")
    rows = (
        (
            f"{row.cost:.3g}",
            row.family,
            "not measured" if row.accuracy is None else percent(row.accuracy),
            row.baseline or "",
            "" if row.difference is None else points(row.difference),
            "" if row.p is None else _p(row.p_holm),
            "" if row.between is None else " and ".join(dict.fromkeys(row.between)),
        )
        for row in table.rows
    )
    yield from _table(heads, rows)
    hull = "; ".join(f"{name} ({cost:.3g}: {accuracy:.1%})" for name, cost, accuracy in table.hull)
    yield from ("", f"Pareto hull: {hull}")


def _difficulty(split: Difficulty) -> Iterator[str]:
    mark = " (oracle: uses gold answers)" if split.oracle else ""
    yield from ("", f"## By {split.by}{mark}", "")
    yield from _table(
        ("strategy", "budget", split.by, "accuracy", "problems"),
        (
            (row.strategy, row.budget, row.difficulty, percent(row.accuracy), str(row.accuracy.n))
            for row in split.rows
        ),
    )


def _verifiers(rows: Iterable[VerifierRow]) -> Iterator[str]:
    yield from ("", "## Verifier quality", "")
    heads = ("strategy", "budget", "scored", "right", "false positives", "false negatives", "AUROC")
    yield from _table(
        heads,
        (
            (
                row.strategy,
                row.budget,
                str(row.scored),
                f"{row.right:.1%}",
                percent(row.false_positive),
                percent(row.false_negative),
                _with_ends(row.auroc, lambda value: f"{value:.3f}", unit=""),
            )
            for row in rows
        ),
    )


def _failures(rows: Iterable[FailureRow]) -> Iterator[str]:
    yield from ("", "## Samples that failed (they count as wrong; --resume solves them again)", "")
    yield from _table(
        ("strategy", "budget", "samples", "error", "for example"),
        (
            (row.strategy, row.budget, str(row.samples), row.error, f"{row.example}, seed {row.seed}")
            for row in rows
        ),
    )


def _scoring(rows: Iterable[ScoringRow]) -> Iterator[str]:
    yield from ("", "## Is scoring in the compared cost?", "")
    yield from _table(
        ("strategy", "budget", "verifier", "positions read", "in the cost"),
        (
            (
                row.strategy,
                row.budget,
                ", ".join(row.verifiers) or "not known",
                "not known" if row.positions is None else f"{row.positions:.3g}",
                f"yes ({row.axis or 'no cost is known'})" if row.inside else f"no: {'; '.join(row.missing)}",
            )
            for row in rows
        ),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(map(_in_cell, row)) + " |"


def _in_cell(text: str) -> str:
    """On one line, with bars that end no cell."""
    return " ".join(text.replace("|", r"\|").split())


def _p(p: float | None) -> str:
    return "not known" if p is None else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _ends(estimate: Estimate | None) -> Sequence[float | None]:
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
