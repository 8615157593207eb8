"""Which strategy to run, by what a probe shows and what budget is left: fitted by `branchwise calibrate`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from ..engine.errors import UsageError
from .base import Strategy
from .grammar import parse_strategy

SHIPPED = Path(__file__).with_name("choice_table.json")
"""Fitted on the reference family; see evals/reference/README.md."""

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strategy, and the share of the calibration problems of its bin that it solved, of `problems`."""

    strategy: str
    accuracy: Share
    problems: Annotated[int, Meta(ge=0)]


class Band(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choices at one budget of `tokens`.

    `probe` samples are drawn first (0: none), whose `signal` in [0, 1], high for an easy problem, falls into
    one of the bins between the ascending `edges`; `choices` has one entry per bin, the hardest first. The
    signal is "score", the mean score of the probe's samples, or "agreement", the share of its leading answer.
    """

    tokens: Annotated[int, Meta(ge=1)]
    probe: Annotated[int, Meta(ge=0, le=64)] = 0
    signal: str = "agreement"
    edges: tuple[Share, ...] = ()
    choices: Annotated[tuple[Choice, ...], Meta(min_length=1)]

    def bin(self, value: float | None) -> int:
        """The bin of a signal; that of the hardest problems where the probe shows nothing."""
        return 0 if value is None else sum(value >= edge for edge in self.edges)


class ChoiceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `calibrate` fitted: `bands` by situation, a word for what can check an answer (`situation`).

    `model` and `suite` say on what; `weights_digest` tells whether the open policy is that model.
    """

    model: str
    suite: str
    weights_digest: str = ""
    bands: dict[str, Annotated[tuple[Band, ...], Meta(min_length=1)]]

    def band(self, case: str, tokens_left: int | None) -> Band:
        """The band whose budget is nearest to what is left, by ratio; the largest where nothing limits it.

        Raises `UsageError` where the table has none for the case.
        """
        bands = self.bands.get(case)
        if bands is None:
            known = ", ".join(sorted(self.bands))
            raise UsageError(f"choice table: fitted for {known}, not for {case}: run branchwise calibrate")
        if tokens_left is None:
            return max(bands, key=lambda band: band.tokens)
        return min(bands, key=lambda band: (abs(math.log(band.tokens / max(1, tokens_left))), band.tokens))

    def strategies(self) -> list[Strategy]:
        """All strategies that it may choose."""
        texts = {
            choice.strategy for bands in self.bands.values() for band in bands for choice in band.choices
        }
        return [parse_strategy(text) for text in sorted(texts)]


def situation(*, sound: bool, scores_steps: bool) -> str:
    """What can check an answer: a sound verifier, a scorer of steps, both, or nothing."""
    words = [word for word, there in (("sound", sound), ("steps", scores_steps)) if there]
    return "+".join(words) or "none"


def load_table(path: Path) -> ChoiceTable:
    """Read and check a table. Raises `UsageError` in one line."""
    table = _decoded(path)
    if not table.bands:
        raise UsageError(f"choice table {path}: has no bands; make one with branchwise calibrate")
    for case, bands in table.bands.items():
        for band in bands:
            _check(path, case, band)
    return table


def _decoded(path: Path) -> ChoiceTable:
    try:
        if path.exists() and not path.is_file():
            # A pipe could be read once only, and a device has no end.
            raise UsageError(f"choice table {path}: is no file; make one with branchwise calibrate")
        return msgspec.json.decode(path.read_bytes(), type=ChoiceTable)
    except OSError as error:
        raise UsageError(f"choice table {path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # a name that no file can have, no text, no JSON, no table
        raise UsageError(f"choice table {path}: {error}; make one with branchwise calibrate") from error


def _check(path: Path, case: str, band: Band) -> None:
    what = f"choice table {path}: {case} at {band.tokens} tokens"
    if len(band.choices) != len(band.edges) + 1:
        raise UsageError(f"{what}: {len(band.choices)} choices for {len(band.edges)} edges: give one more")
    if list(band.edges) != sorted(band.edges):
        raise UsageError(f"{what}: edges {list(band.edges)} do not ascend")
    if band.edges and not band.probe:
        raise UsageError(f"{what}: edges without a probe: nothing tells the bins apart")
    if band.signal not in ("score", "agreement"):
        raise UsageError(f'{what}: signal {band.signal!r}: give "score" or "agreement"')
    for choice in band.choices:
        try:
            parse_strategy(choice.strategy)
        except UsageError as error:
            raise UsageError(f"{what}: {error}") from error


def agreement(keys: Sequence[str | None]) -> float | None:
    """The share of the leading answer among the samples; abstentions agree with nobody. None without
    samples."""
    if not keys:
        return None
    counts: dict[str, int] = {}
    for key in keys:
        if key is not None:
            counts[key] = counts.get(key, 0) + 1
    return max(counts.values(), default=0) / len(keys)


def mean_score(scores: Sequence[float | None]) -> float | None:
    """The mean of the known scores, None where none is known."""
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None
