"""From trials to choices: the strategy that solves most, at each budget and for each difficulty.

Per bin of difficulty the best strategy is chosen on the calibration problems (Snell et al. 2024, arXiv
2408.03314, section 3.2), with two-fold cross-validation to decide whether the probe is worth its tokens.
"""

import functools
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from ...engine.errors import UsageError
from ...strategies.choice_table import Band, Choice
from .trial import Trial

FEWEST_PROBLEMS = 20
"""Problems that a bin must hold on the fitting side: with fewer, its best strategy is the luckiest."""

SIGNALS = ("agreement", "score")


class Outcome(msgspec.Struct, frozen=True):
    """Of one arm on one problem, over its seeds: share solved, and mean flops."""

    solved: float
    flops: float


Outcomes = Mapping[str, Mapping[str, Outcome]]
"""Arm -> problem -> outcome."""


def fit_bands(trials: Iterable[Trial], *, bins: int) -> tuple[Band, ...]:
    """One band per budget, by tokens. Raises `UsageError` where the trials cannot tell."""
    by_budget: dict[int, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_budget[trial.tokens].append(trial)
    if not by_budget:
        raise UsageError("calibrate: no finished sample with a budget of tokens: nothing to fit")
    return tuple(fit_band(tokens, by_budget[tokens], bins=bins) for tokens in sorted(by_budget))


def fit_band(tokens: int, trials: Sequence[Trial], *, bins: int) -> Band:
    """The band of one budget: without a probe, unless choosing behind one solved more in cross-validation
    than the best strategy alone solved on the very problems that chose it."""
    alone = _outcomes(trial for trial in trials if trial.probe == 0)
    if not alone:
        raise UsageError(f"calibrate: no sample without a probe at {tokens} tokens: nothing to compare with")
    problems = sorted({trial.problem for trial in trials})
    folds = [[p for p in problems if _fold(p) == fold] for fold in (0, 1)]
    best = Band(tokens=tokens, choices=(_best(alone, problems, None),))
    best_solved = _mean([outcome.solved for outcome in alone[best.choices[0].strategy].values()])
    for probe in sorted({trial.probe for trial in trials} - {0}):
        probed = [trial for trial in trials if trial.probe == probe]
        outcomes = _outcomes(probed)
        for signal in SIGNALS:
            values = _values(probed, signal)
            if not values:
                continue
            binned = functools.partial(_binned, tokens, probe, signal, outcomes, values, bins)
            solved = _validated(binned, outcomes, values, folds)
            if solved > best_solved:
                best, best_solved = binned(problems), solved
    return best


def _binned(
    tokens: int,
    probe: int,
    signal: str,
    outcomes: Outcomes,
    values: Mapping[str, float],
    bins: int,
    problems: Sequence[str],
) -> Band:
    """A choice per bin: the strategy that is best over all, unless another one is better there by more than
    a standard error."""
    known = [values[problem] for problem in problems if problem in values]
    edges = _edges(known, bins)
    band = Band(
        tokens=tokens,
        probe=probe,
        signal=signal,
        edges=edges,
        choices=(Choice(strategy="", accuracy=0, problems=0),),
    )
    members: list[list[str]] = [[] for _ in range(len(edges) + 1)]
    for problem in problems:
        if problem in values:  # others were solved by the probe, whatever stands behind it
            members[band.bin(values[problem])].append(problem)
    over_all = _best(outcomes, problems, None).strategy
    choices = tuple(_best(outcomes, part, over_all) for part in members)
    return msgspec.structs.replace(band, choices=choices)


def _edges(values: Sequence[float], bins: int) -> tuple[float, ...]:
    """Quantiles as far as they are distinct and leave enough problems between them."""
    edges: list[float] = []
    ordered = np.sort(np.asarray(values, dtype=float))
    for quantile in range(1, bins):
        if len(ordered) < bins * FEWEST_PROBLEMS:
            break
        edge = round(float(np.quantile(ordered, quantile / bins)), 6)
        below = int((ordered < edge).sum()) - sum(int((ordered < e).sum()) for e in edges[-1:])
        if below >= FEWEST_PROBLEMS and int((ordered >= edge).sum()) >= FEWEST_PROBLEMS:
            edges.append(edge)
    return tuple(edges)


def _best(outcomes: Outcomes, problems: Sequence[str], favourite: str | None) -> Choice:
    """The arm that solves most of the problems; equals by flops, then by name. With a favourite, another arm
    must beat it by more than a standard error of their paired difference."""
    shares = {arm: _mean([own[p].solved for p in problems if p in own]) for arm, own in outcomes.items()}
    costs = {arm: _mean([own[p].flops for p in problems if p in own]) for arm, own in outcomes.items()}
    arm = min(shares, key=lambda arm: (-shares[arm], costs[arm], arm))
    if favourite is not None and arm != favourite:
        pairs = [
            outcomes[arm][p].solved - outcomes[favourite][p].solved
            for p in problems
            if p in outcomes[arm] and p in outcomes[favourite]
        ]
        error = float(np.std(pairs, ddof=1)) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.inf
        if _mean(pairs) <= error:
            arm = favourite
    return Choice(strategy=arm, accuracy=round(shares[arm], 4), problems=len(problems))


def _validated(
    fit: Callable[[Sequence[str]], Band],
    outcomes: Outcomes,
    values: Mapping[str, float],
    folds: Sequence[Sequence[str]],
) -> float:
    """The share solved where each fold's choices come from the other fold."""
    solved: list[float] = []
    for held_out, fitted_on in ((folds[0], folds[1]), (folds[1], folds[0])):
        if not fitted_on:
            return -math.inf
        band = fit(fitted_on)
        for problem in held_out:
            own = outcomes[band.choices[band.bin(values.get(problem))].strategy]
            if problem in own:
                solved.append(own[problem].solved)
    return _mean(solved)


def _outcomes(trials: Iterable[Trial]) -> Outcomes:
    rows: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        rows[trial.arm][trial.problem].append(trial)
    return {
        arm: {
            problem: Outcome(_mean([float(t.correct) for t in row]), _mean([t.flops for t in row]))
            for problem, row in by_problem.items()
        }
        for arm, by_problem in rows.items()
    }


def _values(trials: Sequence[Trial], signal: str) -> dict[str, float]:
    """The mean of a signal per problem; arms of one seed share their probe."""
    rows: dict[str, list[float]] = defaultdict(list)
    for trial in trials:
        value = trial.signals.get(signal)
        if value is not None:
            rows[trial.problem].append(value)
    return {problem: _mean(row) for problem, row in rows.items()}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _fold(problem: str) -> int:
    return hashlib.blake2b(problem.encode(), digest_size=1).digest()[0] % 2
