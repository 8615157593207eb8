"""From records to a summary: a pure function of what the store holds."""

import msgspec

from ..runs.plan import make_plan
from ..runs.store import Store
from .cells import cell_row
from .difficulty import by_level, by_quintile, coverage
from .equal_compute import equal_compute
from .failures import failure_rows
from .forcing import forcing_rows
from .hull import hull_steps
from .lints import lints
from .outcomes import by_cell
from .paired_tests import paired_tests
from .scoring import compared_axis, scoring_rows
from .tables import Summary
from .verifiers import verifier_rows


def summarise(store: Store) -> Summary:
    """The summary of a whole or partial run."""
    recipe, order = store.recipe, store.cells
    cells = by_cell(store.records())
    base = None if store.difficulty is None else cells.pop(store.difficulty, None)
    rows = tuple(cell_row(cells[cell], oracle=recipe.oracle) for cell in order if cell in cells)
    done = sum(row.samples for row in rows) + (0 if base is None else len(base.records))
    splits = (by_level(cells, order), by_quintile(cells, order, base))
    table = equal_compute(cells, rows)
    summary = Summary(
        suite=recipe.suite,
        model=recipe.model if recipe.recording is None else f"recorded: {recipe.suite}",
        recipe=msgspec.to_builtins(recipe),
        launches=tuple(store.launches()),
        planned=make_plan(recipe, store.samples()).size,
        done=done,
        cells=rows,
        tests=paired_tests(cells, order),
        equal_compute=table,
        difficulty=tuple(split for split in splits if split is not None),
        coverage=coverage(base),
        hull=hull_steps(cells, rows, table),
        verifiers=verifier_rows(cells, order, base),
        scoring=scoring_rows(cells, order, compared_axis(rows, table)),
        failures=failure_rows(cells, order, base),
        forcing=forcing_rows(cells, order),
    )
    return msgspec.structs.replace(summary, lints=lints(summary))
