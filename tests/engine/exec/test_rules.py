"""The runner under sampling rules: decode rows, kept rows and fork first tokens are drawn alike."""

import math
from pathlib import Path

import pytest
import torch
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import open_model
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.counts import TokenCounts
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.rules import row_rules
from branchwise.engine.sched.plan import KeptSample, ModelPlan, NotDrawn, Sample, Span
from msgspec.structs import replace
from support.driving import run, table
from support.sampling import target_logits
from support.tiny import save_model

TOKENS = [(37 * i * i + 11 * i + 5) % 250 for i in range(30)]
RULES = SamplingParams(
    temperature=0.0,
    repetition_penalty=1.8,
    frequency_penalty=0.6,
    logit_bias={17: 1.5},
    min_tokens=30,
    processed_logprobs=True,
    stats_top_k=5,
)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, "Llama")
    return Runner(open_model(folder), 60)


def _sample(seq: int, params: SamplingParams) -> Sample:
    counts = TokenCounts()
    counts.follow(TOKENS, 20)
    return Sample(SeqId(seq), seq, 30, params, row_rules(params, [1, 2], 20, counts))


def test_kept_rows_and_computed_rows_are_drawn_under_the_same_rules(runner: Runner) -> None:
    span = Span(
        SeqId(1),
        0,
        tuple(TOKENS),
        table(1, 30),
        0,
        samples=(_sample(2, RULES), _sample(3, SamplingParams())),
        keep_logits=True,
    )
    first, plain = run(runner, span).drawn
    kept = (KeptSample(SeqId(1), _sample(4, RULES)), KeptSample(SeqId(1), _sample(3, SamplingParams())))
    later, plain_later = runner.execute(ModelPlan(model="policy", spans=(), kept_samples=kept)).drawn
    raw = runner.kept_logits(SeqId(1))
    target = target_logits(raw.tolist(), RULES, TOKENS, 20, [1, 2])
    best = max(range(len(target)), key=lambda token: target[token])
    assert first.token == later.token == best
    assert first.logprob == pytest.approx(raw.log_softmax(-1)[best].item(), abs=1e-5)
    assert first == replace(later, seq=first.seq)
    assert plain == replace(plain_later, seq=plain.seq)
    assert first.detail is not None
    assert first.detail.processed_logprob == 0.0
    assert plain.detail is None


def test_a_row_of_nan_fails_its_own_samples(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    head = runner.model.decoder.head

    def broken(hidden: torch.Tensor, tile: int | None) -> torch.Tensor:
        logits = head(hidden, tile)
        logits[0] = math.nan
        return logits

    monkeypatch.setattr(runner.model.decoder, "head", broken)
    spans = [
        Span(SeqId(seq), 0, tuple(TOKENS), table(10 * seq, 30), 0, samples=(_sample(seq, SamplingParams()),))
        for seq in (1, 2)
    ]
    result = run(runner, *spans)
    reason = "no token can be drawn for position 30: the model's logits are not finite numbers"
    assert result.not_drawn == (NotDrawn(SeqId(1), reason, finite=False),)
    assert [one.seq for one in result.drawn] == [2]


def test_a_model_may_name_its_repetition_penalty(tmp_path: Path) -> None:
    save_model(tmp_path, "Llama")
    (tmp_path / "generation_config.json").write_text('{"repetition_penalty": 1.05, "top_p": 0.8}')
    sampling = open_model(tmp_path).info.sampling
    assert sampling == SamplingParams(repetition_penalty=1.05, top_p=0.8)
