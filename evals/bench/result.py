"""What one benchmark found, as data."""

import datetime
from collections.abc import Mapping, Sequence

import msgspec

from .contender import Figures, medians
from .machine import Machine

OURS = "branchwise"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: `bench` on one model, with the `sizes` that define the work, and the `subject` of
    benches that measure several. `figure` names the one that is compared; more of it is better, unless it is
    in seconds or is memory."""

    bench: str
    model: str
    dtype: str
    deterministic: bool
    threads: int
    sizes: Mapping[str, float]
    figure: str
    subject: str = ""

    @property
    def less_is_better(self) -> bool:
        return self.figure in ("seconds", "kv_peak_tokens")

    @property
    def title(self) -> str:
        """The bench with its subject."""
        return f"{self.bench} {self.subject}".rstrip()


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One program's figures: the medians over its `runs`. `ratio` says how many times better ours is in the
    figure that is compared; null for ours, and where the peer has no such figure."""

    name: str
    version: str
    figures: Mapping[str, float]
    runs: Sequence[Figures]
    ratio: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's figures and those of the peers in the same run. `bound_tokens_per_s` is what the matrix
    products of the model alone would allow at this batch size; null where no batch size is fixed."""

    work: Work
    ours: Measured
    peers: Sequence[Measured] = ()
    bound_tokens_per_s: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A result with what is needed to read it later."""

    date: str
    machine: Machine
    result: Result


def make_result(
    work: Work,
    runs: Mapping[str, Sequence[Figures]],
    versions: Mapping[str, str],
    bound_tokens_per_s: float | None = None,
) -> Result:
    """The medians of all runs, and the ratios. `runs` and `versions` are by program."""
    measured = {
        name: Measured(name=name, version=versions[name], figures=medians(each), runs=each)
        for name, each in runs.items()
    }
    ours = measured.pop(OURS)
    peers = [
        msgspec.structs.replace(peer, ratio=ratio(work, ours.figures, peer.figures))
        for peer in measured.values()
    ]
    return Result(work=work, ours=ours, peers=peers, bound_tokens_per_s=bound_tokens_per_s)


def ratio(work: Work, ours: Figures, theirs: Figures) -> float | None:
    """How many times better `ours` is, None where there is nothing to compare."""
    mine, other = ours.get(work.figure), theirs.get(work.figure)
    if not mine or not other:
        return None
    return other / mine if work.less_is_better else mine / other


def make_row(result: Result, machine: Machine) -> Row:
    """The result, dated now (UTC)."""
    now = datetime.datetime.now(datetime.UTC)
    return Row(date=now.isoformat(timespec="seconds"), machine=machine, result=result)
