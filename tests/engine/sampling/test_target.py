"""The rows that tokens are drawn from, against the plain statement of each rule."""

import math

import pytest
import torch
from branchwise.engine.sampling.counts import TokenCounts
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.sampling.rules import RowRules, row_rules
from branchwise.engine.sampling.sampler import NoToken, Sampler, Token
from branchwise.engine.sampling.target import Draw, Target
from hypothesis import given
from hypothesis import strategies as st
from support.sampling import target_logits

CPU = torch.device("cpu")
VOCAB = 40
END_IDS = (0, 9)
IDS = st.integers(0, VOCAB - 1)
PARAMS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3]),
    presence_penalty=st.sampled_from([0.0, -1.0, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -0.2]),
    logit_bias=st.dictionaries(IDS, st.sampled_from([-100.0, -1.5, 3.0, -math.inf]), max_size=4),
    allowed_tokens=st.none() | st.lists(IDS, min_size=1, max_size=6).map(tuple),
    min_tokens=st.integers(0, 9),
)


def _rules(params: SamplingParams, tokens: list[int], prompt_length: int) -> RowRules | None:
    counts = TokenCounts()
    counts.follow(tokens, prompt_length)
    return row_rules(params, END_IDS, prompt_length, counts)


@given(data=st.data(), rows=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_rows_are_as_the_rules_say(data: st.DataObject, rows: int, seed: int) -> None:
    logits = torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    before, draws, expected = logits.clone(), [], []
    for row in range(rows):
        params = data.draw(PARAMS)
        tokens = data.draw(st.lists(IDS, min_size=1, max_size=14))
        prompt_length = data.draw(st.integers(1, len(tokens)))
        known = data.draw(st.integers(prompt_length, len(tokens)))  # the others are a draft
        rules = _rules(params, tokens[:known], prompt_length)
        draws.append(Draw(row, seed, len(tokens), params, rules, tuple(tokens[known:])))
        expected.append(target_logits(logits[row].tolist(), params, tokens, prompt_length, END_IDS))
    target = Target(VOCAB, CPU)
    target.rows(torch.randn(3, VOCAB), [draws[0]] * 3)  # leaves its traces in the buffer
    found = target.rows(logits, draws)
    assert torch.equal(logits, before)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_rows_without_rules_are_not_copied() -> None:
    logits = torch.randn(2, VOCAB)
    plain = SamplingParams(temperature=0.7, top_p=0.9)
    ended = SamplingParams(min_tokens=3)
    draws = [
        Draw(0, 1, 9, plain, _rules(plain, [1, 2], 2)),
        Draw(1, 1, 9, ended, _rules(ended, [1, 2], 2)),
    ]
    assert draws[0].rules is None
    assert Target(VOCAB, CPU).rows(logits, draws) is logits


def test_end_ids_are_held_back_until_enough_tokens_stand() -> None:
    params = SamplingParams(temperature=0.0, min_tokens=3)
    logits = torch.zeros(1, VOCAB)
    logits[0, 9], logits[0, 5] = 8.0, 4.0
    rules = _rules(params, [1, 2], 2)
    drawn = [Sampler(VOCAB, CPU).draw(logits, [Draw(0, 1, at, params, rules)])[0] for at in range(2, 7)]
    assert [one.id for one in drawn if isinstance(one, Token)] == [5, 5, 5, 9, 9]


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(), SamplingParams(top_p=0.5)])
def test_a_row_without_a_token_fails_alone(params: SamplingParams) -> None:
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[1] = math.nan
    logits[2] = -math.inf
    nothing = SamplingParams(
        temperature=params.temperature, top_p=params.top_p, allowed_tokens=(0, 9), min_tokens=5
    )
    draws = [
        Draw(0, 1, 2, params),
        Draw(1, 2, 2, params),
        Draw(2, 3, 2, params),
        Draw(3, 4, 2, nothing, _rules(nothing, [1, 2], 2)),
    ]
    first, *failed = Sampler(VOCAB, CPU).draw(logits, draws)
    assert first == Sampler(VOCAB, CPU).draw(logits[:1], draws[:1])[0]
    assert isinstance(first, Token)
    assert [one.reason for one in failed if isinstance(one, NoToken)] == [
        "no token can be drawn for position 2: the model's logits are not finite numbers",
        "no token can be drawn for position 2: the model's logits are not finite numbers",
        "no token can be drawn for position 2: logit_bias, allowed_tokens and min_tokens leave none; "
        "allow one more",
    ]


@pytest.mark.pins("vllm#3063", "vllm#1623", "vllm#2937", "exllamav2#50")
@pytest.mark.parametrize(
    "one", [{"temperature": 1e-6}, {"top_k": 1, "temperature": 9.0}, {"top_p": 0.0, "temperature": 9.0}]
)
def test_one_candidate_equals_greedy_under_rules_too(one: dict[str, float]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(5)).round()
    rule = {"repetition_penalty": 1.5, "logit_bias": {3: 2.0}}
    tokens = [4, 4, 7, 3]
    found = set()
    for params in (SamplingParams(temperature=0.0, **rule), SamplingParams(**one, **rule)):  # pyright: ignore[reportArgumentType]
        rules = _rules(params, tokens, 2)
        for seed in range(5):
            (drawn,) = Sampler(VOCAB, CPU).draw(logits, [Draw(0, seed, 4, params, rules)])
            assert isinstance(drawn, Token)
            found.add(drawn)
    assert len(found) == 1
