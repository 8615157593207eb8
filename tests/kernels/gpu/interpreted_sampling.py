"""The Triton sampler draws what the CPU path draws under any filters, and tells the same statistics."""

import pytest
import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.transforms import distribution
from branchwise.kernels.drawn import Drawn, Filters
from branchwise.kernels.gpu import sample_rows as kernels
from branchwise.kernels.noise import Purpose, row_keys
from branchwise.kernels.plain import sampling as plain
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.logit_rows import LogitRows, assert_as_expected, logit_rows, mixed_rows

COLUMNS = 32
NAN, INF = float("nan"), float("inf")


def drawn(rows: LogitRows, **options: object) -> Drawn:
    return rows.drawn(kernels.sample_rows, columns=COLUMNS, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_the_samplers_token_in_a_mixed_batch(dtype: torch.dtype) -> None:
    rows = mixed_rows(100, dtype)
    assert len(rows.clear()) > len(rows) // 2
    found, oracle = drawn(rows), rows.drawn(plain.sample_rows)
    assert_as_expected(found, rows)
    assert torch.equal(found.rounds[rows.clear()], oracle.rounds[rows.clear()])


@settings(max_examples=12)
@given(rows=logit_rows(most=2))
def test_draws_the_samplers_token_under_any_filters(rows: LogitRows) -> None:
    assert_as_expected(drawn(rows), rows)


@pytest.mark.slow
@settings(max_examples=60)
@given(rows=logit_rows(vocab=300, most=3))
def test_draws_the_samplers_token_under_any_filters_at_length(rows: LogitRows) -> None:
    assert_as_expected(drawn(rows), rows)


def both_limits() -> st.SearchStrategy[SamplingParams]:
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.5, 1.0, 3.0]),
        top_k=st.integers(2, 80),
        top_p=st.floats(0.05, 0.999),
    )


@pytest.mark.slow
@settings(max_examples=30)
@given(rows=logit_rows(most=2, params_of=both_limits()))
def test_top_p_is_of_the_mass_that_top_k_left(rows: LogitRows) -> None:
    """More than `COLUMNS` tokens kept, equal logits at the border, and rows of a single part included."""
    assert_as_expected(drawn(rows), rows)


def test_a_row_depends_on_itself_alone() -> None:
    rows = mixed_rows(70, seed=3)
    order = [11, 4, 9, 2]
    together, apart = drawn(rows), drawn(rows.pick(order))
    for name in ("tokens", "logprobs", "lse", "entropy", "certainty", "rounds"):
        assert torch.equal(getattr(together, name)[order], getattr(apart, name)), name


def test_of_equal_logits_at_a_filters_border_the_lowest_ids_stay() -> None:
    row = torch.tensor([0.0, 3.0, 1.0, 3.0, 3.0, 1.0, 3.0]).repeat(10)
    lowest = [id for id in range(70) if row[id] == 3.0]
    count = 6
    keys = row_keys(range(count), [0] * count, Purpose.TOKEN)
    for filters, kept in (
        ((3, 1.0, 0.0), 3),
        ((2, 0.5, 0.0), 1),
        ((0, 1.0, 0.9), 40),
    ):
        each = Filters(torch.full((count,), filters[0]), *(torch.full((count,), one) for one in filters[1:]))
        found = kernels.sample_rows(
            row.expand(count, 70).contiguous(), torch.ones(count), keys, each, columns=COLUMNS
        )
        assert set(found.tokens.tolist()) <= set(lowest[:kept])


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    logits = torch.tensor([[1.0, 4.0, 4.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-INF, -INF, -INF, -3.0]]).repeat(
        1, 20
    )
    keys = row_keys(range(3), range(3), Purpose.TOKEN)
    found = kernels.sample_rows(logits, torch.zeros(3), keys, columns=COLUMNS)
    assert found.tokens.tolist() == [1, 0, 3]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_row_that_is_not_finite_ends_without_a_finite_logprob(bad: float) -> None:
    rows = mixed_rows(50)
    rows.logits[:, 17 if bad != -INF else slice(None)] = bad
    found = drawn(rows)
    assert not bool(found.logprobs.isfinite().any())
    assert int(found.tokens.min()) >= 0
    assert int(found.tokens.max()) < 50


def test_rows_may_lie_apart_and_outputs_may_be_given() -> None:
    rows = mixed_rows(40).pick([0, 5, 11])
    wide = torch.full((3, 64), NAN)
    wide[:, :40] = rows.logits
    out = Drawn.empty(3, torch.device("cpu"))
    apart = LogitRows(wide[:, :40], rows.params, rows.seeds, rows.positions)
    assert drawn(apart, out=out) is out
    assert torch.equal(out.tokens, drawn(rows).tokens)
    assert torch.equal(out.lse, drawn(rows).lse)
    assert drawn(rows.pick([])).tokens.shape == (0,)


def test_without_filters_none_are_read() -> None:
    rows = mixed_rows(60, seed=5).pick([0, 1, 2, 3])
    found = kernels.sample_rows(rows.logits, rows.temperature, rows.keys, columns=COLUMNS)
    assert_as_expected(found, rows)
    assert found.rounds.tolist() == [1] * 4


@pytest.mark.slow
def test_tokens_follow_the_filtered_distribution() -> None:
    count = 200
    params = SamplingParams(top_k=8, top_p=0.95, temperature=1.3)
    row = torch.randn(16, generator=torch.Generator().manual_seed(1))
    rows = LogitRows(row.expand(count, 16).contiguous(), [params] * count, range(count), [3] * count)
    expected = distribution(row, params).double()
    counts = torch.bincount(rows.drawn(kernels.sample_rows, columns=16).tokens, minlength=16)
    assert int(counts[expected == 0].sum()) == 0
    kept = expected > 0
    scaled = expected[kept] / expected[kept].sum() * count
    assert stats.chisquare(counts[kept].numpy(), scaled.numpy()).pvalue > 1e-3
