"""What the engine did since it was opened, each thing counted once and apart from the others."""

import msgspec

from ..protocol import WorkKind


class Counters(msgspec.Struct):
    """Totals over all models. Rows are positions computed in a step; tokens are positions on a sequence.

    `scheduled_rows` of the steps that were executed are counted from their plans; the six kinds below it are
    counted where a row's fate is known, and their sum is the same number.
    """

    steps: int = 0
    failed_steps: int = 0
    """Steps of one model that raised, those that were tried again among them."""
    retried_steps: int = 0
    """Steps of one model that ran out of memory and are tried again with fewer rows."""

    scheduled_rows: int = 0
    prefill_rows: int = 0
    decode_rows: int = 0
    score_rows: int = 0
    recomputed_rows: int = 0
    """Rows computed again after a preemption, a parking or an eviction; never part of the three above."""
    drafted_rows: int = 0
    """Rows of drafts, accepted or not: one per token, and on each further path of a tree the last known
    token's once more."""
    failed_rows: int = 0
    """Rows of steps that raised, and rows whose values were not finite."""

    generated_tokens: int = 0
    accepted_tokens: int = 0
    """Drafted tokens that stayed."""
    cached_tokens: int = 0
    """Positions of new work that the prefix cache held."""
    recompute_hit_tokens: int = 0
    """Positions of work lost to a preemption or a parking that the prefix cache still held."""

    deferred_for_prefix: int = 0
    """Times a request waited a step for a block that another was computing."""
    parked: int = 0
    preemptions: int = 0
    copied_blocks: int = 0
    refused_requests: int = 0
    """Requests refused because their tenant's queue, or the queue of all, was full."""
    spoiled_requests: int = 0
    """Requests ended by values that were not finite."""

    @property
    def wasted_rows(self) -> int:
        """Rows of drafts that did not stay."""
        return self.drafted_rows - self.accepted_tokens

    def rows_by_kind(self) -> int:
        """The sum that equals `scheduled_rows`."""
        new = self.prefill_rows + self.decode_rows + self.score_rows
        return new + self.recomputed_rows + self.drafted_rows + self.failed_rows

    def count_new(self, kind: WorkKind, rows: int) -> None:
        """Rows computed for the first time on their path, by why they were computed."""
        if kind is WorkKind.DECODE:
            self.decode_rows += rows
        elif kind is WorkKind.SCORE:
            self.score_rows += rows
        else:
            self.prefill_rows += rows
