"""A run's files: tables, plots and the page."""

from pathlib import Path

from ...engine.errors import BranchwiseError
from ..runs.store import Store
from ..summary.export import write_summary
from ..summary.files import write_whole
from ..summary.summarise import summarise
from ..summary.tables import Summary
from .drawing import write_plots
from .page import render_page
from .samples import CAP_BYTES, collect

PAGE_FILE = "report.html"


def write_report(store: Store, folder: Path, cap_bytes: int = CAP_BYTES) -> tuple[Summary, list[Path]]:
    """Write summary.json, .csv and .md, plots/ and report.html from the records; returns the summary, and the
    files that people open, the page first.

    Raises `BranchwiseError` in one line where they cannot be written: the records are not touched.
    """
    summary = summarise(store)
    page = folder / PAGE_FILE
    try:
        tables = write_summary(summary, folder)
        write_plots(summary, folder)
        write_whole(page, render_page(summary, collect(store, cap_bytes)))
    except OSError as error:
        raise BranchwiseError(
            f"{error.filename or folder}: the report cannot be written ({error.strerror}); the records are "
            f"safe: make room or change its permissions, then branchwise view {folder}"
        ) from error
    return summary, [page, *tables]
