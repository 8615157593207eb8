"""Rows of logits with parameters of their own, what the CPU path draws from them, and which of them leave no
doubt: where fp32 rounding decides, two correct implementations may part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sampling.sampler import Sampler, Token
from branchwise.engine.sampling.target import Draw
from branchwise.engine.sampling.transforms import is_greedy
from branchwise.kernels.drawn import Drawn, Filters
from branchwise.kernels.noise import Purpose, exponential, row_keys
from hypothesis import strategies as st
from msgspec.structs import replace
from torch import Tensor

SampleRows = Callable[..., Drawn]
"""`sample_rows` of the torch or of the Triton kernels."""

MIXED = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.6),
    SamplingParams(temperature=2.5),
    SamplingParams(top_k=1, temperature=5.0),
    SamplingParams(top_k=7),
    SamplingParams(top_p=0.0, temperature=5.0),
    SamplingParams(top_p=1e-6, temperature=5.0),
    SamplingParams(top_p=0.7),
    SamplingParams(min_p=0.2),
    SamplingParams(min_p=1.0, temperature=3.0),
    SamplingParams(top_k=20, top_p=0.8, temperature=1.5),
    SamplingParams(top_k=30, top_p=0.9, min_p=0.05, temperature=0.8),
    SamplingParams(top_k=10_000, top_p=0.5),
]


@dataclass(frozen=True)
class LogitRows:
    """Logits [rows, vocab], fp32 or bf16, and the parameters, seeds and positions of one draw from each."""

    logits: Tensor
    params: Sequence[SamplingParams]
    seeds: Sequence[int]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.params)

    @property
    def keys(self) -> Tensor:
        return row_keys(self.seeds, self.positions, Purpose.TOKEN)

    @property
    def temperature(self) -> Tensor:
        return torch.tensor([one.temperature for one in self.params])

    @property
    def filters(self) -> Filters:
        return Filters(
            torch.tensor([one.top_k for one in self.params], dtype=torch.int32),
            torch.tensor([one.top_p for one in self.params]),
            torch.tensor([one.min_p for one in self.params]),
        )

    def pick(self, rows: Sequence[int]) -> LogitRows:
        return LogitRows(
            self.logits[list(rows)],
            [self.params[row] for row in rows],
            [self.seeds[row] for row in rows],
            [self.positions[row] for row in rows],
        )

    def drawn(self, sample_rows: SampleRows, **options: object) -> Drawn:
        return sample_rows(self.logits, self.temperature, self.keys, self.filters, **options)

    def expected(self) -> list[Token]:
        """What the CPU path draws, with statistics."""
        draws = [
            Draw(row, self.seeds[row], self.positions[row], replace(self.params[row], stats_top_k=1))
            for row in range(len(self))
        ]
        found = Sampler(self.logits.shape[1], torch.device("cpu")).draw(self.logits.float(), draws)
        tokens = [one for one in found if isinstance(one, Token)]
        assert len(tokens) == len(draws)
        return tokens

    def clear(self) -> list[int]:
        """The rows in which rounding decides nothing: not what the filters keep, and not who wins."""
        return [row for row in range(len(self)) if self._is_clear(row)]

    def _is_clear(self, row: int) -> bool:
        params = self.params[row]
        if is_greedy(params):
            return True
        logits = self.logits[row].double()
        scores = (logits - logits.max()) / params.temperature
        values, order = scores.sort(descending=True, stable=True)
        mass = values.exp()
        before = mass.cumsum(0) - mass
        count = min(params.top_k or len(mass), len(mass))
        edge = torch.tensor(params.top_p, dtype=torch.float64) * mass[:count].sum()
        floor = torch.tensor(params.min_p, dtype=torch.float64).log()
        kept = torch.arange(len(mass)) < count
        if params.top_p < 1.0:
            if (before[1:] - edge).abs().lt(1e-5 * edge).any():
                return False
            kept &= before < edge
        if params.min_p > 0.0:
            if (values[1:] - floor).abs().lt(1e-5 * (1 - floor)).any():
                return False
            kept &= values >= floor
        noise = exponential(self.keys[:, row : row + 1], order[kept].int())[0]
        raced = (values[kept] - noise.double().log()).sort(descending=True).values
        rounding = 1e-6 * (10 + logits[logits.isfinite()].abs().max() / params.temperature)
        return len(raced) < 2 or bool(raced[0] - raced[1] > rounding)


def mixed_rows(vocab: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> LogitRows:
    """A row for each of `MIXED`."""
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(MIXED), vocab, generator=generator) * 2).to(dtype)
    rows = range(len(MIXED))
    return LogitRows(logits, MIXED, [seed * 1000 + row for row in rows], [7 + row for row in rows])


def parameters() -> st.SearchStrategy[SamplingParams]:
    """All filters and their combinations."""
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
        top_k=st.sampled_from([0, 0, 1, 2, 5, 13, 40, 1000]),
        top_p=st.sampled_from([1.0, 1.0, 0.0, 1e-7, 0.3, 0.77, 0.999]),
        min_p=st.sampled_from([0.0, 0.0, 1e-4, 0.07, 0.41, 1.0]),
    )


@st.composite
def logit_rows(
    draw: st.DrawFn,
    *,
    vocab: int = 90,
    most: int = 4,
    params_of: st.SearchStrategy[SamplingParams] | None = None,
) -> LogitRows:
    """Smooth rows, rows with many equal logits, and rows with impossible tokens; fp32 or bf16."""
    count = draw(st.integers(1, most))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = torch.randn(count, draw(st.integers(1, vocab)), generator=generator)
    logits *= draw(st.sampled_from([0.3, 2.0, 20.0]))
    if draw(st.booleans()):
        logits = logits.round()
    if draw(st.booleans()):
        impossible = torch.rand(logits.shape, generator=generator) < 0.5
        impossible[:, 0] = False
        logits = logits.masked_fill(impossible, float("-inf"))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    params = draw(st.lists(parameters() if params_of is None else params_of, min_size=count, max_size=count))
    seeds = draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count))
    positions = draw(st.lists(st.integers(0, 10_000), min_size=count, max_size=count))
    return LogitRows(logits.to(dtype), params, seeds, positions)


def assert_as_expected(found: Drawn, rows: LogitRows) -> None:
    """Tokens of the clear rows, and the statistics of all, are those of the CPU path."""
    expected = rows.expected()
    tokens = found.tokens.tolist()
    for row in rows.clear():
        assert tokens[row] == expected[row].id, (row, rows.params[row])
    logits = rows.logits.double()
    lse = logits.logsumexp(-1)
    chosen = logits.gather(-1, found.tokens[:, None].long())[:, 0]
    torch.testing.assert_close(found.lse.double(), lse, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(found.logprobs.double(), chosen - lse, atol=1e-5, rtol=1e-6)
    stats = [one.detail.stats for one in expected if one.detail is not None and one.detail.stats is not None]
    entropy, certainty, _ = torch.tensor(stats).T
    torch.testing.assert_close(found.entropy, entropy, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.certainty, certainty, atol=1e-4, rtol=1e-5)
