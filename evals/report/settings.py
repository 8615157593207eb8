"""How the settings of a run are named in charts and tables."""

import re

from ..summary.equal_compute import family_of
from ..summary.tables import CellRow, DifficultyRow

_NUMBERS = re.compile(r"\w+=(?:-?[\d.]+(?:e[-+]?\d+)?|none)(?=[,)\s])")


def setting_name(row: CellRow | DifficultyRow) -> str:
    """`best_of_n(n=16) @ tokens=512`."""
    return f"{row.strategy} @ {row.budget or 'no limit'}"


def label_of(strategy: str) -> str:
    """The numbers that set a strategy apart within its family: `n=16`; without any, its name."""
    return ", ".join(_NUMBERS.findall(strategy)) or family_of(strategy)
