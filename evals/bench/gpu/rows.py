"""One line of the GPU check's table, and what its figure is held against."""

import enum

import msgspec

US = 1e6
"""Microseconds in a second: the unit of all times in rows."""


class Outcome(enum.StrEnum):
    """What a row says. `CUT`: the time of a section that only measures was over."""

    NOTED = "noted"
    RIGHT = "right"
    MET = "met"
    MISSED = "missed"
    CUT = "cut"
    WRONG = "wrong"
    FAILED = "failed"
    NOT_RUN = "not run"


BAD = frozenset({Outcome.WRONG, Outcome.FAILED, Outcome.NOT_RUN})
"""Outcomes that fail the check; a missed goal does not."""


class Goal(msgspec.Struct, frozen=True):
    """What a figure should reach: at most, or at least, `value`; with `of_bound` it is the share of the bound
    that counts, and not the figure itself."""

    value: float
    at_least: bool = False
    of_bound: bool = False

    def met(self, figure: float) -> bool:
        """Whether `figure`, of the goal's own kind, reaches it."""
        return figure >= self.value if self.at_least else figure <= self.value

    @property
    def text(self) -> str:
        """As the table shows it."""
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.value:.0%} of bound" if self.of_bound else f"{sign} {self.value:g}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`figure` names the unit of `value` and `bound`: us, x, GB/s, error, tokens/s. `share` is how much of
    the bound was reached, 1 for all of it."""

    section: str
    name: str
    outcome: Outcome
    shape: str = ""
    figure: str = ""
    value: float | None = None
    bound: float | None = None
    share: float | None = None
    goal: str = ""
    note: str = ""


def timed(
    section: str,
    name: str,
    seconds: float,
    bound_seconds: float | None = None,
    *,
    shape: str = "",
    goal: Goal | None = None,
    note: str = "",
) -> Row:
    """A measured time. `goal` is in microseconds, or a share of the bound."""
    bound = None if bound_seconds is None else bound_seconds * US
    share = None if bound_seconds is None else bound_seconds / seconds
    return _row(section, name, "us", seconds * US, bound, share, shape, goal, note)


def rated(
    section: str,
    name: str,
    figure: str,
    value: float,
    bound: float | None = None,
    *,
    shape: str = "",
    goal: Goal | None = None,
    note: str = "",
) -> Row:
    """A rate, a ratio or an amount: more of it is nearer to its bound."""
    share = None if bound is None else value / bound
    return _row(section, name, figure, value, bound, share, shape, goal, note)


def checked(
    section: str, name: str, error: float, tolerance: float, *, shape: str = "", note: str = ""
) -> Row:
    """A result's error, at most `tolerance`; NaN is wrong."""
    outcome = Outcome.RIGHT if error <= tolerance else Outcome.WRONG
    goal = Goal(tolerance).text
    return Row(
        section=section,
        name=name,
        outcome=outcome,
        shape=shape,
        figure="error",
        value=error,
        goal=goal,
        note=note,
    )


def held(section: str, name: str, holds: bool, *, shape: str = "", note: str = "") -> Row:
    """A statement that must be true."""
    outcome = Outcome.RIGHT if holds else Outcome.WRONG
    return Row(section=section, name=name, outcome=outcome, shape=shape, note=note)


def _row(
    section: str,
    name: str,
    figure: str,
    value: float,
    bound: float | None,
    share: float | None,
    shape: str,
    goal: Goal | None,
    note: str,
) -> Row:
    outcome = Outcome.NOTED
    if goal is not None:
        judged = share if goal.of_bound else value
        assert judged is not None, f"{name}: a goal of the bound, and no bound"
        outcome = Outcome.MET if goal.met(judged) else Outcome.MISSED
    return Row(
        section=section,
        name=name,
        outcome=outcome,
        shape=shape,
        figure=figure,
        value=value,
        bound=bound,
        share=share,
        goal="" if goal is None else goal.text,
        note=note,
    )
