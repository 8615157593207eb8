"""The ratio test keeps the target's distribution, whatever the draft's is, and accepts as much as can be."""

import pytest
import torch
from branchwise.engine.sampling.drafting import Drafted, Drafting, Proposal
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.sampling.sampler import NoToken, Sampler, Token
from branchwise.engine.sampling.target import Draw
from branchwise.engine.sampling.transforms import distribution
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy import stats

CPU = torch.device("cpu")
VOCAB = 12
SEEDS = range(1000)
NAMES = ["plain", "tempered", "top_k", "top_p", "min_p", "greedy"]
TRANSFORMS = [
    SamplingParams(),
    SamplingParams(temperature=0.6),
    SamplingParams(top_k=5),
    SamplingParams(temperature=1.3, top_p=0.8),
    SamplingParams(min_p=0.15),
]


def logits(seed: int, *, like: torch.Tensor | None = None, noise: float = 1.0) -> torch.Tensor:
    """Fp32 [VOCAB], near `like` where that is given."""
    random = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed))
    return random * 1.5 if like is None else like + random * noise


def token(found: Token | NoToken) -> Token:
    assert isinstance(found, Token)
    return found


def drafted(q_logits: torch.Tensor, seed: int, params: SamplingParams, *, own_noise: bool = True) -> Token:
    draw = Draw(0, seed, 7, params, drafting=Drafting(own_noise=own_noise))
    (found,) = Sampler(VOCAB, CPU).draw(q_logits[None], [draw])
    return token(found)


def verified(p_logits: torch.Tensor, seed: int, params: SamplingParams, proposal: Proposal) -> int:
    (found,) = Sampler(VOCAB, CPU).draw(p_logits[None], [Draw(0, seed, 7, params, proposal=proposal)])
    return token(found).id


def pairs(
    p_logits: torch.Tensor, q_logits: torch.Tensor, params: SamplingParams, seeds: range = SEEDS
) -> list[tuple[int, int]]:
    """(draft, what the ratio test gave) per seed."""
    found = []
    for seed in seeds:
        draft = drafted(q_logits, seed, params)
        assert draft.drafted is not None
        found.append((draft.id, verified(p_logits, seed, params, Proposal(draft.id, draft.drafted.q))))
    return found


def assert_follows(tokens: list[int], p: torch.Tensor) -> None:
    counts = torch.bincount(torch.tensor(tokens), minlength=VOCAB)
    kept = p > 0
    assert int(counts[~kept].sum()) == 0
    expected = p[kept].double() / p[kept].double().sum() * len(tokens)
    assert stats.chisquare(counts[kept].numpy(), expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("params", TRANSFORMS, ids=NAMES[:5])
@pytest.mark.pins("transformers#47932", "vllm#53436")
def test_tokens_follow_the_target_and_drafts_the_distribution_that_comes_back(params: SamplingParams) -> None:
    """Chi-square, with the transforms on both sides."""
    p_logits = logits(1)
    q_logits = logits(2, like=p_logits)
    found = pairs(p_logits, q_logits, params)
    assert_follows([draft for draft, _ in found], distribution(q_logits, params))
    assert_follows([result for _, result in found], distribution(p_logits, params))
    q = drafted(q_logits, 0, params).drafted
    assert q is not None
    torch.testing.assert_close(q.q, distribution(q_logits, params))


@pytest.mark.parametrize("params", TRANSFORMS[:3], ids=NAMES[:3])
@pytest.mark.parametrize("proposed", ["likely", "unlikely"])
def test_tokens_follow_the_target_where_the_draft_is_a_point_mass(
    params: SamplingParams, proposed: str
) -> None:
    p_logits = logits(3)
    p = distribution(p_logits, params)
    x = int(p_logits.argmax() if proposed == "likely" else p_logits.argmin())
    found = [verified(p_logits, seed, params, Proposal(x)) for seed in SEEDS]
    assert_follows(found, p)
    accepted, n = sum(one == x for one in found), len(found)
    assert accepted / n == pytest.approx(float(p[x]), abs=4 * (0.25 / n) ** 0.5)


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.5])
def test_acceptance_is_one_minus_the_distance_and_the_coupled_one_not_far_below(noise: float) -> None:
    """Leviathan et al. 2023, theorem 3.5; with shared noise (1 - TV) / (1 + TV) <= acceptance <= 1 - TV."""
    params = SamplingParams(temperature=0.8)
    p_logits = logits(4)
    q_logits = logits(5, like=p_logits, noise=noise)
    distance = float((distribution(p_logits, params) - distribution(q_logits, params)).abs().sum()) / 2
    ratio = sum(draft == result for draft, result in pairs(p_logits, q_logits, params)) / len(SEEDS)
    sigma = (0.25 / len(SEEDS)) ** 0.5
    assert ratio == pytest.approx(1 - distance, abs=4 * sigma)
    sampler = Sampler(VOCAB, CPU)
    draws = [Draw(row, seed, 7, params) for seed in SEEDS for row in (0, 1)]
    both = [token(one).id for one in sampler.draw(torch.stack((p_logits, q_logits)), draws)]
    coupled = sum(ours == theirs for ours, theirs in zip(both[::2], both[1::2], strict=True)) / len(SEEDS)
    assert (1 - distance) / (1 + distance) - 4 * sigma <= coupled <= 1 - distance + 4 * sigma


def test_a_rejected_token_is_never_drawn_in_its_stead() -> None:
    """So the drawn token equals the proposed one exactly if that was accepted."""
    p_logits = torch.tensor([2.0, 1.0, 0.0] + [-30.0] * (VOCAB - 3))
    q = torch.zeros(VOCAB)
    q[0], q[1] = 0.9, 0.1  # p(0) < q(0): the residual of 0 is nothing
    results = {verified(p_logits, seed, SamplingParams(), Proposal(0, q)) for seed in range(400)}
    assert results == {0, 1, 2}
    certain = torch.full((VOCAB,), -30.0)
    certain[4] = 30.0
    assert {verified(certain, seed, SamplingParams(), Proposal(2)) for seed in range(50)} == {4}


def test_greedy_rows_take_the_likeliest_whatever_is_proposed() -> None:
    p_logits = logits(6)
    best = int(p_logits.argmax())
    for x in range(VOCAB):
        assert verified(p_logits, x, GREEDY, Proposal(x)) == best
        assert verified(p_logits, x, GREEDY, Proposal(x, torch.full((VOCAB,), 1 / VOCAB))) == best
    draft = drafted(p_logits, 3, GREEDY)
    assert (draft.id, draft.drafted) == (best, Drafted(None, []))


def test_a_sampled_row_is_not_greedy_on_any_device() -> None:
    """A tree verifier of a known engine takes the likeliest token on a CPU, whatever the temperature."""
    p_logits = torch.zeros(VOCAB)
    assert len({verified(p_logits, seed, SamplingParams(), Proposal(3)) for seed in range(300)}) == VOCAB


@given(data=st.data())
def test_a_result_depends_on_its_own_row_alone(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 5))
    many = torch.stack([logits(50 + row) for row in range(rows)])
    draws = []
    for row in range(rows):
        params = data.draw(st.sampled_from([*TRANSFORMS, GREEDY]))
        q = data.draw(st.sampled_from([None, distribution(logits(90 + row), SamplingParams())]))
        proposal = data.draw(st.sampled_from([None, Proposal(data.draw(st.integers(0, VOCAB - 1)), q)]))
        drafting = data.draw(st.sampled_from([None, Drafting(True), Drafting(False, 2)]))
        draws.append(Draw(row, data.draw(st.integers(0, 9)), 7, params, proposal=proposal, drafting=drafting))
    together = Sampler(VOCAB, CPU).draw(many, draws)
    for draw, found in zip(draws, together, strict=True):
        (alone,) = Sampler(VOCAB, CPU).draw(many[draw.row][None], [replace(draw, row=0)])
        assert replace(token(alone), drafted=None) == replace(token(found), drafted=None)
        ours, theirs = token(alone).drafted, token(found).drafted
        assert (ours and list(ours.runners_up)) == (theirs and list(theirs.runners_up))


@pytest.mark.parametrize("params", [*TRANSFORMS, GREEDY], ids=NAMES)
def test_a_coupled_draft_is_the_targets_own_draw_and_its_runner_up_the_second_of_the_race(
    params: SamplingParams,
) -> None:
    """Without the first token the target would draw the second."""
    row = logits(8)
    for seed in range(40):
        draw = Draw(0, seed, 7, params)
        coupled = replace(draw, drafting=Drafting(runners_up=1))
        plain, found = Sampler(VOCAB, CPU).draw(torch.stack((row, row)), [draw, replace(coupled, row=1)])
        assert token(plain).id == token(found).id
        told = token(found).drafted
        assert told is not None
        banned = row.clone()
        banned[token(plain).id] = float("-inf")
        if params in (SamplingParams(), GREEDY):
            (second,) = Sampler(VOCAB, CPU).draw(banned[None], [draw])
            assert list(told.runners_up) == [token(second).id]
        assert token(plain).id not in told.runners_up


def test_a_row_that_is_not_finite_says_so() -> None:
    row = torch.full((VOCAB,), float("nan"))
    draws = [
        Draw(0, 1, 7, params, proposal=proposal, drafting=drafting)
        for params in (*TRANSFORMS, GREEDY)
        for proposal, drafting in ((Proposal(3), None), (None, Drafting(True, 1)))
    ]
    for found in Sampler(VOCAB, CPU).draw(row[None], draws):
        assert isinstance(found, NoToken)
        assert not found.finite
