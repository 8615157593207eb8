"""The runner on plans made by hand: copies, kept rows, the trash block, scores."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.exec.cache import bytes_per_block
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import LoadedModel, open_model
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.sched.plan import Copy, KeptSample, ModelPlan, Sample, Span
from support.driving import decode, run, scored_logprobs, table
from support.recording import FakeRecorder
from support.tiny import save_model
from torch.overrides import TorchFunctionMode

TOKENS = [(37 * i * i + 11 * i + 5) % 250 for i in range(200)]
SAMPLED = SamplingParams(temperature=0.9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, "Llama")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return open_model(folder)


@pytest.fixture(params=["fast", "deterministic", "fast in torch", "deterministic in torch"])
def runner(
    request: pytest.FixtureRequest, model: LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Native operators where they can be built, and torch in their place."""
    if request.param.endswith("torch"):
        monkeypatch.setenv("BRANCHWISE_NATIVE", "0")
        model = open_model(folder)
    return Runner(model, 60, deterministic=request.param.startswith("deterministic"))


def _prefill(runner: Runner, tokens: list[int], blocks: tuple[int, ...], seq: int = 1) -> None:
    run(runner, Span(SeqId(seq), 0, tuple(tokens), blocks, 0))


def _sample(seq: int, seed: int, position: int) -> Sample:
    return Sample(SeqId(seq), seed, position, SAMPLED)


def _alone(runner: Runner, tokens: list[int], seed: int, block: int = 50) -> tuple[int, float]:
    """The token drawn behind `tokens` by a fresh prefill on blocks of its own."""
    span = Span(
        SeqId(99), 0, tuple(tokens), table(block, len(tokens)), 0, samples=(_sample(99, seed, len(tokens)),)
    )
    (drawn,) = run(runner, span).drawn
    return drawn.token, drawn.logprob


def test_several_samples_of_one_row_and_a_kept_row(runner: Runner) -> None:
    samples = tuple(_sample(seq, 40 + seq, 30) for seq in (2, 3, 4))
    span = Span(SeqId(1), 0, tuple(TOKENS[:30]), table(1, 30), 0, samples=samples, keep_logits=True)
    first = run(runner, span).drawn
    assert [(one.seq, one.token) for one in first] == [
        (seq, _alone(runner, TOKENS[:30], 40 + seq)[0]) for seq in (2, 3, 4)
    ]
    later = runner.execute(
        ModelPlan(
            model="policy",
            spans=(),
            kept_samples=(KeptSample(SeqId(1), _sample(9, 42, 30)), KeptSample(SeqId(1), _sample(8, 44, 30))),
        )
    ).drawn
    assert [(one.seq, one.token, one.logprob) for one in later] == [
        (9, first[0].token, first[0].logprob),
        (8, first[2].token, first[2].logprob),
    ]
    runner.execute(ModelPlan(model="policy", spans=(), forget=(SeqId(1),)))
    with pytest.raises(KeyError):
        runner.kept_logits(SeqId(1))


def test_kept_and_computed_rows_are_drawn_in_one_step(runner: Runner) -> None:
    run(runner, Span(SeqId(1), 0, tuple(TOKENS[:20]), table(1, 20), 0, keep_logits=True))
    span = Span(
        SeqId(2), 0, tuple(TOKENS[:9]), table(10, 9), 0, samples=(_sample(2, 5, 9),), keep_logits=True
    )
    kept = KeptSample(SeqId(1), _sample(3, 6, 20))
    drawn = runner.execute(ModelPlan(model="policy", spans=(span,), kept_samples=(kept,))).drawn
    assert [one.seq for one in drawn] == [2, 3]
    assert drawn[0].token == _alone(runner, TOKENS[:9], 5)[0]
    assert drawn[1].token == _alone(runner, TOKENS[:20], 6)[0]


def test_copies_run_before_the_forward_pass(runner: Runner) -> None:
    _prefill(runner, TOKENS[:20], table(1, 20))
    # A child shares block 1, takes a copy of the partial block 2 and writes on; the parent writes on in its
    # own.
    spans = tuple(
        Span(SeqId(seq), 20, (token,), blocks, 20, samples=(_sample(seq, 7, 21),))
        for seq, token, blocks in ((1, 100, (1, 2)), (2, 200, (1, 5)))
    )
    drawn = runner.execute(ModelPlan(model="policy", spans=spans, copies=(Copy(2, 5),))).drawn
    for one, token in zip(drawn, (100, 200), strict=True):
        alone = _alone(runner, [*TOKENS[:20], token], 7)
        assert one.token == alone[0]
        assert one.logprob == pytest.approx(alone[1], abs=1e-5)


def test_rows_before_write_from_change_no_block(runner: Runner) -> None:
    _prefill(runner, TOKENS[:40], table(1, 40))
    before = runner.cache.blocks[:, :, 1:].clone()
    # Position 31 is needed again for its logits; its KV stands in a published block.
    span = Span(SeqId(2), 31, (TOKENS[31],), (1, 2), 32, samples=(_sample(2, 3, 32),))
    (drawn,) = run(runner, span).drawn
    assert torch.equal(runner.cache.blocks[:, :, 1:], before)
    assert drawn.token == _alone(runner, TOKENS[:32], 3)[0]


@pytest.mark.pins("vllm#43810", "sglang#32477", "sglang#35351")
def test_the_poisoned_trash_block_and_stale_blocks_reach_nothing(runner: Runner) -> None:
    expected = decode(runner, [table(1, 60)], [TOKENS[:25]], [0], [3], 20, GREEDY)
    runner.cache.blocks.fill_(float("nan"))
    found = decode(runner, [table(1, 60)], [TOKENS[:25]], [0], [3], 20, GREEDY)
    assert found == expected
    runner.cache.blocks[:, :, 0] = float("nan")
    span = Span(SeqId(1), 15, (TOKENS[15],), table(1, 16), 16, samples=(_sample(1, 0, 16),))
    assert run(runner, span).drawn[0].logprob < 0


def test_scores_come_in_the_order_of_the_plan(runner: Runner) -> None:
    """Spans are packed in another order than they are planned in."""
    spans = []
    for seq, count in ((1, 5), (2, 30), (3, 12)):
        tokens = TOKENS[seq : seq + count]
        places = (0, 2, 3)
        spans.append(
            Span(
                SeqId(seq),
                0,
                tuple(tokens),
                table(10 * seq, count),
                0,
                logprob_at=places,
                targets=tuple(tokens[p + 1] for p in places),
            )
        )
    found = run(runner, *spans).scores
    assert [part.seq for part in found] == [1, 2, 3]
    for span, part in zip(spans, found, strict=True):
        alone = scored_logprobs(runner, span.tokens, first_block=50)
        assert part.logprobs == pytest.approx([alone[p] for p in span.logprob_at], abs=1e-5)
    assert all(part.rewards == () for part in found)


@pytest.mark.pins("vllm#5550")
def test_long_scoring_is_chunked_over_the_head(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scored_logprobs(runner, TOKENS)
    seen: list[int] = []
    head = runner.model.decoder.head
    monkeypatch.setattr("branchwise.engine.exec.runner._SCORE_ROWS", 32)
    monkeypatch.setattr(
        runner.model.decoder, "head", lambda hidden, tile: seen.append(len(hidden)) or head(hidden, tile)
    )
    assert scored_logprobs(runner, TOKENS) == pytest.approx(whole, abs=1e-5)
    assert max(seen) == 32
    assert sum(seen) == len(TOKENS) - 1


def test_mixed_steps_equal_lonely_ones(runner: Runner) -> None:
    """Decode rows, a prefill chunk and a scoring span in one ragged step."""
    _prefill(runner, TOKENS[:48], table(1, 48))
    decoding = [
        Span(SeqId(seq), 48, (seq,), (*table(1, 48), 10 + seq), 48, samples=(_sample(seq, seq, 49),))
        for seq in (1, 2, 3)
    ]
    chunk = Span(SeqId(7), 0, tuple(TOKENS[60:90]), table(20, 30), 0, samples=(_sample(7, 7, 30),))
    drawn = run(runner, decoding[0], chunk, *decoding[1:]).drawn
    assert [one.seq for one in drawn] == [1, 7, 2, 3]
    for one in drawn:
        context = TOKENS[60:90] if one.seq == 7 else [*TOKENS[:48], one.seq]
        alone = _alone(runner, context, one.seq)
        assert one.token == alone[0]
        assert one.logprob == pytest.approx(alone[1], abs=1e-5)


def test_kv_bytes_and_limits(model: LoadedModel) -> None:
    runner = Runner(model, 8, max_rows=16)
    block_bytes = bytes_per_block(model.decoder.shape, 16, torch.float32)
    assert block_bytes == 3 * 2 * 2 * 16 * 16 * 4
    assert block_bytes * 8 == runner.cache.blocks.numel() * 4
    with pytest.raises(ValueError, match="a step of 17 rows exceeds max_rows 16"):
        _prefill(runner, TOKENS[:17], (1, 2))


def test_an_empty_plan_gives_an_empty_result(runner: Runner) -> None:
    result = run(runner)
    assert (result.drawn, result.scores) == ((), ())


def test_the_reference_family_loads_and_scores() -> None:
    folder = Path(__file__).parents[3] / "evals" / "reference" / "models"
    opened = open_model(folder / "prm")
    assert opened.deterministic
    assert opened.info.head == "reward"
    tokens = opened.info.tokenizer.encode("<bos>Use 3 and 4 to make 7")
    span = Span(SeqId(1), 0, tuple(tokens), table(1, len(tokens)), 0, reward_at=(len(tokens) - 1,))
    (scores,) = run(Runner(opened, 8, deterministic=True), span).scores
    assert 0.0 <= scores.rewards[0] <= 1.0


def test_all_work_of_a_runner_is_on_its_device(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the thread's current GPU, whatever the tensors are on: with the second GPU of a
    machine all kernels would run on the first."""
    inside: list[torch.device] = []
    outside: list[str] = []

    @contextmanager
    def on_device(device: torch.device) -> Iterator[None]:
        inside.append(device)
        yield
        inside.pop()

    class Watched(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if inside != [model.decoder.device]:
                outside.append(str(func))
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr("branchwise.engine.exec.runner.on_device", on_device)
    tokens, blocks = tuple(TOKENS[:20]), table(1, 20)
    spans = (Span(SeqId(1), 0, tokens, blocks, 0, logprob_at=(3, 4), targets=(5, 6), keep_logits=True),)
    later = ModelPlan(
        model="policy",
        spans=(Span(SeqId(2), 20, (7,), (1, 9), 20, samples=(_sample(2, 42, 21),)),),
        copies=(Copy(2, 9),),
        kept_samples=(KeptSample(SeqId(1), _sample(9, 42, 20)),),
        forget=(SeqId(5),),
    )
    with Watched():
        runner = Runner(model, 60, recorder=FakeRecorder())
        runner.execute(ModelPlan(model="policy", spans=spans))
        runner.execute(later)
    assert (outside, inside) == ([], [])
