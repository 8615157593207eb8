"""What a search pays is a function of the search alone: not of pool, chunks, kept rows, nor of a warm
cache.
"""

from __future__ import annotations

from branchwise.engine.protocol import ScoreParams, SeqId
from branchwise.engine.sched.scheduler import StepLimits
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checks import RecordingMeter, Rig, extend_params

Command = tuple[str, int, int]

COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(["fork", "append", "truncate", "extend", "extend_all", "score", "park", "cancel"]),
        st.integers(0, 7),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=14,
)


class Script:
    """Runs the same commands on any engine. `who` and `much` are taken modulo what there is."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.meter = RecordingMeter()
        self.seed = 0

    def run(self, prompt: list[int], commands: list[Command]) -> None:
        self.seed = 0
        self.live: list[SeqId] = [self.rig.open(prompt, seed=0)]
        for verb, who, much in commands:
            getattr(self, verb)(self.live[who % len(self.live)], much)
        for seq in self.live:
            self.rig.scheduler.release(seq)

    def fork(self, seq: SeqId, much: int) -> None:
        self.live += self.rig.fork(seq, range(self.seed + 1, self.seed + 1 + much))
        self.seed += much

    def append(self, seq: SeqId, much: int) -> None:
        if len(self.rig.tokens(seq)) + much < 30:
            self.rig.scheduler.append(seq, [much] * much)

    def truncate(self, seq: SeqId, much: int) -> None:
        known = len(self.rig.tokens(seq))
        self.rig.scheduler.truncate(seq, max(1, known - much))

    def extend(self, seq: SeqId, much: int) -> None:
        self.rig.extend_now(seq, extend_params(much), self.meter)

    def extend_all(self, seq: SeqId, much: int) -> None:
        self.rig.run(*[self.rig.extend(s, extend_params(much, order=(s,)), self.meter) for s in self.live])

    def score(self, seq: SeqId, much: int) -> None:
        known = len(self.rig.tokens(seq))
        self.rig.score_now(seq, ScoreParams(logprobs_from=max(1, known - much)), self.meter)

    def park(self, seq: SeqId, much: int) -> None:
        self.rig.scheduler.park(seq)

    def cancel(self, seq: SeqId, much: int) -> None:
        self.rig.scheduler.cancel(self.rig.extend(seq, extend_params(much), self.meter))
        self.rig.collect()

    def charges(self) -> tuple[list[int], list[int], int]:
        """Rows and heads by position, and tokens; sorted, because chunks change the order."""
        committed = self.meter.committed
        heads = sorted(head for work in committed for head in work.heads)
        return sorted(self.meter.spent_rows()), heads, sum(work.tokens for work in committed)


@settings(max_examples=60)
@given(
    prompt=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    commands=COMMANDS,
    blocks=st.integers(9, 16),
    chunk=st.integers(1, 7),
    rows=st.integers(1, 7),
    kept=st.integers(0, 1),
)
def test_the_charges_are_the_same_on_every_engine(
    prompt: list[int], commands: list[Command], blocks: int, chunk: int, rows: int, kept: int
) -> None:
    roomy = Script(Rig(num_blocks=400, block_size=4, max_model_len=32))
    roomy.run(prompt, commands)
    limits = StepLimits(max_rows=rows, max_chunk_rows=chunk, max_kept_rows=kept)
    tight = Script(Rig(num_blocks=blocks, block_size=4, max_model_len=32, limits=limits))
    tight.run(prompt, commands)
    assert tight.charges() == roomy.charges()
    warm = Script(roomy.rig)
    warm.run(prompt, commands)
    assert warm.charges() == roomy.charges()
