"""The torch oracle of the sampling kernels draws what the CPU path draws."""

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.transforms import distribution
from branchwise.kernels.drawn import Drawn, Filters
from branchwise.kernels.noise import Purpose, row_keys
from branchwise.kernels.plain.sampling import sample_rows
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.logit_rows import LogitRows, assert_as_expected, logit_rows, mixed_rows


@given(rows=logit_rows(vocab=300, most=6))
def test_draws_the_samplers_token_under_any_filters(rows: LogitRows) -> None:
    assert_as_expected(rows.drawn(sample_rows), rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_the_samplers_token_from_long_rows(dtype: torch.dtype) -> None:
    rows = mixed_rows(5000, dtype)
    assert len(rows.clear()) > len(rows) // 2
    assert_as_expected(rows.drawn(sample_rows), rows)


@given(rows=logit_rows(), data=st.data())
def test_a_row_depends_on_itself_alone(rows: LogitRows, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    order = order[: data.draw(st.integers(1, len(rows)))]
    together, apart = rows.drawn(sample_rows), rows.pick(order).drawn(sample_rows)
    assert torch.equal(together.tokens[order], apart.tokens)
    assert torch.equal(together.rounds[order], apart.rounds)


def test_of_equal_logits_at_a_filters_border_the_lowest_ids_stay() -> None:
    count = 400
    logits = torch.tensor([0.0, 3.0, 1.0, 3.0, 3.0, 1.0, 3.0]).repeat(count, 1)
    keys = row_keys(range(count), [0] * count, Purpose.TOKEN)
    for filters, kept in (((3, 1.0, 0.0), {1, 3, 4}), ((4, 0.5, 0.0), {1, 3}), ((0, 1.0, 0.9), {1, 3, 4, 6})):
        each = Filters(torch.full((count,), filters[0]), *(torch.full((count,), one) for one in filters[1:]))
        assert set(sample_rows(logits, torch.ones(count), keys, each).tokens.tolist()) == kept


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.6),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.8),
        SamplingParams(min_p=0.1, temperature=1.5),
        SamplingParams(top_k=12, top_p=0.9, min_p=0.05, temperature=1.3),
    ],
)
def test_tokens_follow_the_filtered_distribution(params: SamplingParams) -> None:
    count = 20_000
    row = torch.randn(50, generator=torch.Generator().manual_seed(1)) * 2
    rows = LogitRows(row.expand(count, 50), [params] * count, range(count), [3] * count)
    expected = distribution(row, params).double() * count
    counts = torch.bincount(rows.drawn(sample_rows).tokens, minlength=50)
    assert int(counts[expected == 0].sum()) == 0
    kept = expected > 0
    scaled = expected[kept] / expected.sum() * count
    assert stats.chisquare(counts[kept].numpy(), scaled.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_ends_without_a_finite_logprob(bad: float) -> None:
    rows = mixed_rows(60)
    rows.logits[:, 17] = bad
    assert not bool(rows.drawn(sample_rows).logprobs.isfinite().any())
    rows.logits.fill_(float("-inf"))
    assert not bool(rows.drawn(sample_rows).logprobs.isfinite().any())


def test_fills_the_outputs_that_are_given_and_takes_no_rows() -> None:
    rows = mixed_rows(30)
    out = Drawn.empty(len(rows), torch.device("cpu"))
    assert rows.drawn(sample_rows, out=out) is out
    assert torch.equal(out.tokens, rows.drawn(sample_rows).tokens)
    assert rows.pick([]).drawn(sample_rows).tokens.shape == (0,)
