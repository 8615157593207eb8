"""The runner on the Triton kernels in the interpreter: the class that serves the CPU, with another dispatch.

The same steps go through torch's kernels and through Triton's, whose passes a stand-in for CUDA graphs
records: logits agree at every step, and tokens are equal.
"""

import random
from collections.abc import Sequence

import pytest
import torch
from branchwise.engine.exec.recorded import RecordedPasses
from branchwise.engine.exec.runner import Runner
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import Copy, KeptSample, ModelPlan, ModelResult, Sample, Span
from branchwise.evals.bench.random_model import random_model
from support.recording import FakeRecorder

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
BLOCK = 16
BLOCKS = 40
MAX_ROWS = 44
"""No multiple of the row tile of the deterministic mode."""
CPU = torch.device("cpu")
PLAIN = SamplingParams(temperature=0.8)
NARROW = SamplingParams(temperature=1.1, top_k=9, top_p=0.8, min_p=0.02)
GREEDY = SamplingParams(temperature=0.0)


def make_runner(
    monkeypatch: pytest.MonkeyPatch, kernels: str, *, deterministic: bool = False
) -> tuple[Runner, FakeRecorder]:
    monkeypatch.setenv("BRANCHWISE_KERNELS", kernels)
    model = random_model(SHAPE, dtype=torch.float32, device=CPU, max_model_len=256)
    recorder = FakeRecorder()
    runner = Runner(
        model,
        BLOCKS,
        block_size=BLOCK,
        deterministic=deterministic,
        max_rows=MAX_ROWS,
        recorder=recorder if kernels == "triton" else None,
    )
    assert isinstance(runner._passes, RecordedPasses) == (kernels == "triton")
    return runner, recorder


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> tuple[Runner, Runner, FakeRecorder]:
    torch_runner, _ = make_runner(monkeypatch, "torch")
    triton_runner, recorder = make_runner(monkeypatch, "triton")
    return torch_runner, triton_runner, recorder


class Branches:
    """Sequences that grow through steps of both runners, which must agree."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self.runners = runners
        self.tokens: dict[SeqId, list[int]] = {}
        self.tables: dict[SeqId, list[int]] = {}
        self.computed: dict[SeqId, int] = {}
        self._free = list(range(BLOCKS - 1, 0, -1))
        self._seqs = iter(range(1, 1000))

    def open(self, tokens: Sequence[int]) -> SeqId:
        seq = SeqId(next(self._seqs))
        self.tokens[seq], self.tables[seq], self.computed[seq] = list(tokens), [], 0
        return seq

    def fork(self, parent: SeqId) -> tuple[SeqId, tuple[Copy, ...]]:
        """A child that shares whole blocks, and has a copy of the tail."""
        child = self.open(self.tokens[parent])
        whole, rest = divmod(self.computed[parent], BLOCK)
        self.tables[child] = self.tables[parent][:whole]
        copies: tuple[Copy, ...] = ()
        if rest:
            self.tables[child].append(self._free.pop())
            copies = (Copy(self.tables[parent][whole], self.tables[child][-1]),)
        self.computed[child] = self.computed[parent]
        return child, copies

    def span(
        self, seq: SeqId, params: SamplingParams | None, *, rows: int | None = None, keep: bool = True
    ) -> Span:
        """The next `rows` rows of a sequence, all that are known where it is None; with a draw behind the
        last known token."""
        start, known = self.computed[seq], len(self.tokens[seq])
        stop = known if rows is None else start + rows
        table = self.tables[seq]
        while len(table) * BLOCK < stop:
            table.append(self._free.pop())
        samples = ()
        if params is not None and stop == known:
            samples = (Sample(seq, 1000 + seq, known, params),)
        self.computed[seq] = stop
        tokens = tuple(self.tokens[seq][start:stop])
        return Span(seq, start, tokens, tuple(table), start, samples=samples, keep_logits=keep)

    def step(
        self,
        *spans: Span,
        copies: tuple[Copy, ...] = (),
        kept: tuple[KeptSample, ...] = (),
    ) -> ModelResult:
        plan = ModelPlan("policy", spans, copies=copies, kept_samples=kept)
        expected, found = (runner.execute(plan) for runner in self.runners)
        for span in spans:
            if span.keep_logits:
                first, second = (runner.kept_logits(span.seq) for runner in self.runners)
                assert torch.allclose(first, second, atol=1e-4)
        assert [one.token for one in found.drawn] == [one.token for one in expected.drawn]
        logprobs = [[one.logprob for one in result.drawn] for result in (found, expected)]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
        for one in expected.drawn:
            self.tokens[one.seq].append(one.token)
        return found


def test_a_tree_of_branches_gives_the_logits_and_tokens_of_the_torch_path(runners):
    branches = Branches(runners[:2])
    rng = random.Random(3)
    root = branches.open([rng.randrange(64) for _ in range(21)])
    branches.step(branches.span(root, PLAIN, rows=12))  # a prefill in two chunks
    branches.step(branches.span(root, PLAIN))
    family, copies = [root], []
    for _ in range(2):
        child, copied = branches.fork(root)
        copies += copied
        family.append(child)
    first = KeptSample(root, Sample(family[1], 77, len(branches.tokens[family[1]]), NARROW))
    branches.tokens[family[1]].pop()  # it draws its own token for the position behind the shared rows
    branches.step(branches.span(root, GREEDY), copies=tuple(copies), kept=(KeptSample(root, first.sample),))
    for params in (PLAIN, NARROW):
        branches.step(*(branches.span(seq, params) for seq in family))
    late = branches.open([rng.randrange(64) for _ in range(9)])
    branches.step(branches.span(late, NARROW), *(branches.span(seq, PLAIN) for seq in family[:2]))
    recorder = runners[2]
    assert recorder.replayed > recorder.recorded
    assert runners[1]._attention.grouped is False


@pytest.mark.slow
def test_recorded_passes_are_replayed_while_branches_come_and_go(runners):
    branches = Branches(runners[:2])
    recorder = runners[2]
    one, two = branches.open(range(5)), branches.open(range(7, 20))
    branches.step(branches.span(one, PLAIN, keep=False), branches.span(two, PLAIN, keep=False))
    for _ in range(3):
        branches.step(branches.span(one, PLAIN, keep=False), branches.span(two, PLAIN, keep=False))
    made = recorder.recorded
    for _ in range(14):  # across a block's end
        branches.step(branches.span(two, PLAIN, keep=False), branches.span(one, PLAIN, keep=False))
    assert recorder.recorded == made


@pytest.mark.slow
def test_a_verified_draft_scores_and_draws_as_the_torch_path_does(runners):
    branches = Branches(runners[:2])
    seq = branches.open(range(18))
    branches.step(branches.span(seq, PLAIN))
    known = len(branches.tokens[seq])
    draft = (4, 9, 2)
    table = (*branches.tables[seq], branches._free.pop())
    samples = tuple(
        Sample(seq, 5, known + index, PLAIN, drafted=draft[:index], node=index) for index in range(4)
    )
    span = Span(
        seq,
        known - 1,
        (branches.tokens[seq][-1], *draft),
        table,
        known - 1,
        samples=samples,
        drafted=3,
        logprob_at=(known - 1, known),
        targets=draft[:2],
    )
    plan = ModelPlan("policy", (span,))
    expected, found = (runner.execute(plan) for runner in runners[:2])
    assert [one.token for one in found.drawn] == [one.token for one in expected.drawn]
    assert found.scores[0].logprobs == pytest.approx(expected.scores[0].logprobs, abs=1e-4)


@pytest.mark.slow
def test_deterministic_rows_have_the_same_bits_alone_and_in_a_batch(monkeypatch: pytest.MonkeyPatch):
    rows: dict[str, torch.Tensor] = {}
    for name in ("alone", "shared"):
        runner, _ = make_runner(monkeypatch, "triton", deterministic=True)
        branches = Branches([runner, runner])
        seq = branches.open(range(21))
        branches.step(branches.span(seq, GREEDY))
        spans = [branches.span(seq, GREEDY)]
        if name == "shared":
            sibling, copies = branches.fork(seq)
            branches.tokens[sibling].append(33)
            spans.append(branches.span(sibling, GREEDY))
            runner.cache.copy([copy.source for copy in copies], [copy.target for copy in copies])
        branches.step(*spans)
        rows[name] = runner.kept_logits(seq).clone()
    assert torch.equal(rows["alone"], rows["shared"])
