"""A run's files: tables, plots and the page."""

from pathlib import Path

from ..runs.store import Store
from ..summary.export import write_summary
from ..summary.summarise import summarise
from ..summary.tables import Summary
from .drawing import write_plots
from .page import render_page
from .samples import CAP_BYTES, collect

PAGE_FILE = "report.html"


def write_report(store: Store, folder: Path, cap_bytes: int = CAP_BYTES) -> tuple[Summary, list[Path]]:
    """Write summary.json, .csv and .md, plots/ and report.html from the records; returns the summary, and the
    files that people open, the page first."""
    summary = summarise(store)
    tables = write_summary(summary, folder)
    write_plots(summary, folder)
    page = folder / PAGE_FILE
    page.write_text(render_page(summary, collect(store, cap_bytes)), encoding="utf-8")
    return summary, [page, *tables]
