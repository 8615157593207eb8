"""The sections of the GPU check, and a run of them that ends in time whatever one of them does."""

import gc
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from . import (
    end_to_end,
    invariance,
    machine,
    replay,
    right_attention,
    right_head,
    right_layers,
    search,
    sweep,
    timed_attention,
    timed_head,
    timed_layers,
)
from .rows import Outcome, Row
from .setting import Setting
from .timer import Deadline

Rows = Callable[[Setting], Iterator[Row]]


@dataclass(frozen=True)
class Section:
    """`rows` yields one row after the other, and is left when `seconds` are over. `proves`: what it did not
    come to was not shown, which fails the check."""

    name: str
    rows: Rows
    seconds: float
    proves: bool = False


SECTIONS = (
    Section(right_attention.SECTION, right_attention.rows, 120, proves=True),
    Section(right_layers.SECTION, right_layers.rows, 40, proves=True),
    Section(right_head.SECTION, right_head.rows, 60, proves=True),
    Section(replay.SECTION, replay.rows, 60, proves=True),
    Section(invariance.SECTION, invariance.rows, 60, proves=True),
    Section(timed_attention.SECTION, timed_attention.rows, 60),
    Section(timed_head.SECTION, timed_head.rows, 45),
    Section(timed_layers.SECTION, timed_layers.rows, 40),
    Section(end_to_end.SECTION, end_to_end.rows, 100),
    Section(search.SECTION, search.rows, 45, proves=True),
    Section(sweep.SECTION, sweep.rows, 90),
)
"""In their order: what must hold comes before what takes long."""

_MACHINE_S = 20.0


class Checking:
    """Runs sections within `deadline`; `on_row` sees each row as it comes, `on_section` hears of each end."""

    def __init__(
        self,
        setting: Setting,
        deadline: Deadline,
        *,
        on_row: Callable[[Row], None] = lambda row: None,
        on_section: Callable[["Checking"], None] = lambda checking: None,
    ) -> None:
        self.rows: list[Row] = []
        self.measuring = machine.Measuring()
        self._setting = setting
        self._deadline = deadline
        self._on_row = on_row
        self._on_section = on_section

    def run(self, sections: Sequence[Section]) -> None:
        """The machine first, for the bounds of all others."""
        self._run(Section(machine.SECTION, self.measuring.rows, _MACHINE_S), self._setting)
        found = self.measuring.found
        setting = self._setting if found is None else replace(self._setting, machine=found)
        for section in sections:
            self._run(section, setting)

    def _run(self, section: Section, setting: Setting) -> None:
        began, before = time.monotonic(), len(self.rows)
        own = self._deadline.within(section.seconds)
        try:
            if own.passed:
                self._add(_stopped(section, "the run's time is over"))
            else:
                self._collect(section, setting, own)
        except Exception as error:
            self._add(_failed(section, error))
        _tidy(setting.device)
        took, count = time.monotonic() - began, len(self.rows) - before
        self._add(_noted(section, f"{count} rows in {took:.1f} s"))
        self._on_section(self)

    def _collect(self, section: Section, setting: Setting, own: Deadline) -> None:
        for row in section.rows(setting):
            self._add(row)
            if own.passed:
                self._add(_stopped(section, f"the section's {section.seconds:.0f} s are over, or the run's"))
                return

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._on_row(row)


def chosen(only: Sequence[str]) -> list[Section]:
    """Sections whose names hold one of `only`; all where that is empty."""
    return [one for one in SECTIONS if not only or any(part in one.name for part in only)]


def _noted(section: Section, note: str) -> Row:
    return Row(section=section.name, name="time", outcome=Outcome.NOTED, note=note)


def _stopped(section: Section, note: str) -> Row:
    outcome = Outcome.NOT_RUN if section.proves else Outcome.CUT
    return Row(section=section.name, name="the rest", outcome=outcome, note=note)


def _failed(section: Section, error: Exception) -> Row:
    """Its last line of this package, and the first line of what it says."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    said = (str(error).splitlines() or [""])[0][:200]
    note = f"{type(error).__name__} at {place}: {said}"
    return Row(section=section.name, name="raised", outcome=Outcome.FAILED, note=note)


def _tidy(device: torch.device) -> None:
    """Give back what a section held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
