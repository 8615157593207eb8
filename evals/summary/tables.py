"""The tables of a summary. A share or figure that nothing is known of is None, never 0."""

from typing import Any

import msgspec

from ..statistics.intervals import Estimate
from ..statistics.paired import Comparison
from ..statistics.ranking import CalibrationBin

OUTCOMES = ("right", "wrong", "no answer", "censored", "ungraded", "failed")
"""What became of a sample: each counts under the last of these that fits."""


class CellRow(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy at one budget, over all samples that are recorded.

    Abstained, failed and ungraded samples count as wrong in `accuracy`; shares are of all samples, costs of
    those that did not fail.
    `truncated`: a limit or the context cut the returned candidate. Costs are per sample, their intervals over
    problems: `flops` logical, `tokens` committed, `seconds` by wall clock beside the other samples in flight,
    `kv` peak positions of the policy, each counted once; `kv_held` peak positions in blocks of all models,
    and `kv_unshared` the same as if nothing were shared. `mean_costs` are mean positions by kind. `outcomes`
    are shares that add up to 1 (see `OUTCOMES`). `oracle`: its verifier knew the answer: it is never ranked.
    """

    strategy: str
    budget: str
    problems: int
    samples: int
    accuracy: Estimate
    flops: Estimate | None
    tokens: Estimate | None
    seconds: Estimate | None
    kv: Estimate | None
    kv_held: Estimate | None
    kv_unshared: Estimate | None
    censored: float
    truncated: float
    abstained: float
    failed: float
    ungraded: float
    mean_costs: dict[str, float | None]
    reasons: dict[str, int]
    outcomes: dict[str, float]
    oracle: bool = False


class PairedTest(msgspec.Struct, frozen=True, kw_only=True):
    """`strategy` less `baseline` on the problems that both have, at one budget.

    `p_holm` bounds false alarms over all tests of its table. `problems_for_2_points`: how many problems would
    show a true gap of 2 points four times of five, at this spread and these seeds.
    """

    strategy: str
    baseline: str
    budget: str
    comparison: Comparison
    p_holm: float | None
    problems_for_2_points: int | None


class EqualComputeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One family of strategies at one mean cost.

    `between` names the two measured settings that `accuracy` is interpolated from, in log cost, `weight` the
    dearer one's; all None where the cost lies outside of what was measured. The test is against `baseline`,
    the first family of the recipe that was measured around this cost.
    """

    family: str
    cost: float
    accuracy: Estimate | None
    between: tuple[str, str] | None
    weight: float | None
    baseline: str | None = None
    difference: Estimate | None = None
    p: float | None = None
    p_holm: float | None = None


class EqualCompute(msgspec.Struct, frozen=True, kw_only=True):
    """Families of strategies (settings that differ in numbers only) at equal mean spend per problem of all
    models together. `axis` is "flops" where they are known, else "tokens"."""

    axis: str
    rows: tuple[EqualComputeRow, ...]
    hull: tuple[tuple[str, float, float], ...]
    """(setting, mean cost, accuracy) of the Pareto hull in log cost, oracles apart."""


class HullStep(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the Pareto hull, the cheapest first: what to use from its mean cost on.

    `gain` is its accuracy less that of the step before it, paired by problem, and `p` its test; both None for
    the first step. The hull is chosen by these same samples, so gains lean upwards.
    """

    strategy: str
    budget: str
    cost: Estimate
    accuracy: Estimate
    gain: Estimate | None
    p: float | None


class DifficultyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy of one cell on the problems of one difficulty."""

    strategy: str
    budget: str
    difficulty: str
    accuracy: Estimate


class Difficulty(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy by difficulty: `by` is "level" (the data's own) or "quintile" of pass@1 from samples outside
    of the comparison. Quintiles use gold answers, so they are an oracle's."""

    by: str
    oracle: bool
    rows: tuple[DifficultyRow, ...]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """pass@k of the samples that sort the problems: an oracle's upper bound, never ranked. The interval is
    over problems."""

    k: int
    pass_at_k: Estimate


class VerifierRow(msgspec.Struct, frozen=True, kw_only=True):
    """Scores against grades, over all graded candidates of one cell (or of the base samples).

    `sound`: the verifier gave a verdict on each. Accepted is what it verified, or scored 0.5 or more where it
    gives no verdict: `false_positive` is the accepted share of wrong candidates, `false_negative` the refused
    share of right ones. None where there is no such candidate. A search that stops at its first accepted
    candidate shows fewer of them than were sampled.
    """

    strategy: str
    budget: str
    candidates: int
    scored: int
    sound: bool
    right: float
    false_positive: Estimate | None
    false_negative: Estimate | None
    auroc: Estimate | None
    brier: float | None
    calibration_error: float | None
    calibration: tuple[CalibrationBin, ...]


class ScoringRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who scored the candidates of one cell, and whether that work is inside the cost that settings are
    compared by (`axis`: "flops" or "tokens", None where neither is known).

    `positions` are the mean positions that scoring models read per sample, None where they are not known.
    `missing` says what the cost leaves out, one phrase each; `inside` where that is nothing.
    """

    strategy: str
    budget: str
    verifiers: tuple[str, ...]
    positions: float | None
    axis: str | None
    inside: bool
    missing: tuple[str, ...]


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples of one cell ended with one error, and one of them. They count as wrong until
    `--resume` solves them."""

    strategy: str
    budget: str
    error: str
    samples: int
    example: str
    seed: int


class ForcingRow(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one method (the same parameters with other numbers) at one budget.

    `control`: share of chains within the limits that were asked for, None where none were. `scaling`: points
    of accuracy per 100 tokens of thinking, mean slope over pairs of settings, None for one length.
    `performance`: the best setting's accuracy. `settings`: (strategy, mean tokens of thinking, accuracy), the
    shortest first. `cut`: share of chains that a limit cut: falling accuracy below a cut is truncation, and
    no gain from thinking longer above it.
    """

    family: str
    budget: str
    control: float | None
    scaling: float | None
    performance: float
    cut: float
    settings: tuple[tuple[str, float, float], ...]


class Lint(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know before trusting a figure. `level` is "warning" or "note"."""

    level: str
    code: str
    text: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `done` of `planned` samples are recorded, those that failed included; the rest of a partial
    run is missing, not wrong."""

    suite: str
    model: str
    recipe: dict[str, Any]
    launches: tuple[dict[str, Any], ...]
    planned: int
    done: int
    cells: tuple[CellRow, ...]
    tests: tuple[PairedTest, ...]
    equal_compute: EqualCompute | None
    difficulty: tuple[Difficulty, ...]
    coverage: tuple[Coverage, ...] = ()
    hull: tuple[HullStep, ...] = ()
    verifiers: tuple[VerifierRow, ...] = ()
    scoring: tuple[ScoringRow, ...] = ()
    failures: tuple[FailureRow, ...] = ()
    forcing: tuple[ForcingRow, ...] = ()
    lints: tuple[Lint, ...] = ()
