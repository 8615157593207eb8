"""The choice table as a file."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...engine.user_path import user_path
from ...strategies.choice_table import Band, ChoiceTable, load_table, situation
from ...strategies.grammar import parse_strategy
from ..runs.store import Store
from .fit import fit_bands
from .trial import Trial, trials


def table_path(text: str) -> Path:
    """The path of `--table`, its folder made, before anything is spent on what goes into it.

    Raises `UsageError` where no file can be written there, or one that is there is no table.
    """
    path = user_path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            load_table(path)
        else:
            path.touch()  # permission bits do not tell (root, read-only file systems): only opening does
            path.unlink()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--table {text}: cannot write there ({reason}); give another path") from error
    return path


def write_table(store: Store, path: Path, *, bins: int) -> Iterator[str]:
    """Fit the run's trials and write the table, or put its situations into the one that is there; yields
    lines that tell what was fitted.

    Raises `UsageError` where the file is no table, or one of another model.
    """
    by_case: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials(store):
        by_case[trial.case].append(trial)
    for sound in (True, False):
        scored = situation(sound=sound, scores_steps=True)
        if scored in by_case:
            by_case[situation(sound=sound, scores_steps=False)] = without_step_scores(
                by_case[scored], sound=sound
            )
    recipe = store.recipe
    digest = store.meta("weights of policy") or ""
    fitted = {case: fit_bands(rows, bins=bins) for case, rows in sorted(by_case.items()) if rows}
    if not fitted:
        raise UsageError(f"{store.folder}: holds no finished sample: nothing to fit")
    table = ChoiceTable(model=recipe.model, suite=recipe.suite, weights_digest=digest, bands=fitted)
    if path.exists():
        table = _merged(load_table(path), table, path)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
    for case, bands in fitted.items():
        for band in bands:
            yield f"{case}, tokens={band.tokens}: {_told(band)}"
    yield str(path)


def without_step_scores(rows: Sequence[Trial], *, sound: bool) -> list[Trial]:
    """The trials as they would be without a scorer of steps.

    Where a sound verifier has the last word, what asks for no step scores does the same without them; where
    none has, only what had nothing scored does.
    """
    scored = {row.arm for row in rows if row.scored and row.probe == 0}
    return [
        msgspec.structs.replace(row, signals={name: v for name, v in row.signals.items() if name != "score"})
        for row in rows
        if not (parse_strategy(row.arm).requirements().step_scores if sound else row.arm in scored)
    ]


def _merged(there: ChoiceTable, new: ChoiceTable, path: Path) -> ChoiceTable:
    """The situations of both, the new ones first."""
    if there.weights_digest != new.weights_digest:
        raise UsageError(
            f"--table {path}: fitted on {there.model}, other weights: give another file; with --resume the "
            "run is not done again"
        )
    suites = dict.fromkeys((*there.suite.split(", "), new.suite))
    return ChoiceTable(
        model=there.model,
        suite=", ".join(suites),
        weights_digest=new.weights_digest,
        bands={**there.bands, **new.bands},
    )


def _told(band: Band) -> str:
    told = " | ".join(f"{c.strategy} ({c.accuracy:.3f} of {c.problems})" for c in band.choices)
    if not band.probe:
        return f"no probe: {told}"
    edges = ", ".join(f"{edge:g}" for edge in band.edges) or "none"
    return f"probe {band.probe}, {band.signal} with edges {edges}: {told}"
