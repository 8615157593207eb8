"""What a row more costs a step, measured: a step's time as a fixed part and one per row.

Only speed follows from it. What is generated does not: coupled drafts change no token, and the ratio test's
lengths are chosen by the assumed cost.
"""

from typing import NamedTuple

DECAY = 0.98
"""Weight of the past per step: the last fifty or so count."""

MOST_ROWS = 512
"""Steps of more rows are prefills, whose rows cost less each; decoding is what is to be known."""

OUTLIER = 4.0
"""A step slower than this many times the mean was held up by something else."""

WARM_UP = 8
"""First steps, which load code and touch memory for the first time, that do not count."""

FEWEST = 8
"""Steps after those before the measured cost is believed."""

PRIOR_SPREAD = 8.0
"""Variance of rows (rows squared) that the assumption is worth: it decides while steps are all alike."""


class VerifyCost(NamedTuple):
    """A step's time as `fixed_rows + rows`, in the time of one row."""

    fixed_rows: float

    def marginal(self, rows: int) -> float:
        """Break-even acceptance of the first draft token in a step of `rows` sampled rows: what a row more
        for each of them adds, as a share of the step."""
        return rows / (self.fixed_rows + rows)


class StepCost:
    """Least squares over the last steps of one model, seconds = fixed + per_row * rows, drawn towards the
    `assumed` ratio of the two by as much as the steps leave it open."""

    __slots__ = ("_assumed", "_covariance", "_mean_rows", "_mean_s", "_spread", "_steps", "_weight")

    def __init__(self, assumed: VerifyCost) -> None:
        self._assumed = assumed
        self._steps = 0
        self._weight = 0.0
        self._mean_rows = 0.0
        self._mean_s = 0.0
        self._spread = 0.0
        self._covariance = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows took `seconds`."""
        self._steps += 1
        if self._steps <= WARM_UP or not 0 < rows <= MOST_ROWS or seconds <= 0.0:
            return
        if self.known and seconds > OUTLIER * self._mean_s * max(1.0, rows / self._mean_rows):
            return
        self._weight = DECAY * self._weight + 1.0
        share = 1.0 / self._weight
        from_rows, from_s = rows - self._mean_rows, seconds - self._mean_s
        self._mean_rows += share * from_rows
        self._mean_s += share * from_s
        self._spread = (1.0 - share) * (self._spread + share * from_rows * from_rows)
        self._covariance = (1.0 - share) * (self._covariance + share * from_rows * from_s)

    @property
    def known(self) -> bool:
        """Whether enough steps were seen."""
        return self._steps >= WARM_UP + FEWEST and self._weight > 0.0

    def seconds(self, rows: int) -> float:
        """The time of a step of `rows` rows; meaningful where the cost is `known`."""
        return self._mean_s + self._per_row() * (rows - self._mean_rows)

    @property
    def verify(self) -> VerifyCost:
        if not self.known:
            return self._assumed
        per_row = self._per_row()
        return VerifyCost(max(0.0, self._mean_s / per_row - self._mean_rows))

    def _per_row(self) -> float:
        """Seconds, above 0 and at most what leaves no fixed part."""
        assumed = self._mean_s / (self._assumed.fixed_rows + self._mean_rows)
        slope = (self._covariance + PRIOR_SPREAD * assumed) / (self._spread + PRIOR_SPREAD)
        return min(max(slope, 0.05 * assumed), self._mean_s / self._mean_rows)
