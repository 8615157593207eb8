"""Training parts: batches, losses, optimizer, sampler, labels, rank statistics (nothing is trained here)."""

import math
import random

import pytest
import torch
from branchwise.evals.reference.batches import encode_trace, pad_rows, trace_batches
from branchwise.evals.reference.decoder import Decoder, DecoderConfig, RewardModel
from branchwise.evals.reference.distillation import distillation_loss, overlap
from branchwise.evals.reference.evaluate import majority, rate
from branchwise.evals.reference.language_training import Recipe, schedule, trace_loss
from branchwise.evals.reference.optimizer import Optimizer, orthogonalise
from branchwise.evals.reference.pruning import prune_neurons
from branchwise.evals.reference.reward_data import (
    MarkScores,
    corrupted_trace,
    label,
    near_miss_trace,
    random_trace,
)
from branchwise.evals.reference.reward_training import auroc, epoch_batches, mark_values
from branchwise.evals.reference.sampler import sample
from branchwise.evals.reference.tasks import arithmetic, countdown
from branchwise.evals.reference.tasks.trace import Span, Split, Trace
from branchwise.evals.reference.vocabulary import BOS_ID, EOS_ID, PAD_ID, STEP_MARK_ID, encode
from torch.nn import functional

TINY = DecoderConfig(hidden_size=16, num_layers=2, num_heads=2, head_size=8, intermediate_size=24)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def tiny_decoder(seed: int = 0) -> Decoder:
    """A decoder with random weights everywhere."""
    torch.manual_seed(seed)
    model = Decoder(TINY).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_loss_weights_cover_the_trained_spans_only() -> None:
    trace = Trace(
        "C3,4>7:", (Span("4-3=1>1;", trained=False), Span("<wait>"), Span("4+3=7>7;</think>4+3<eos>"))
    )
    token_ids, weights = encode_trace(trace)
    text = "4-3=1>1;"
    assert token_ids == [BOS_ID, *encode(trace.prompt), *encode(trace.completion)]
    assert weights == [0] * (1 + len(trace.prompt) + len(text)) + [1] * (
        1 + len("4+3=7>7;") + 1 + len("4+3") + 1
    )


def test_batches_are_seeded_and_padded_to_the_bucket() -> None:
    first, second = trace_batches(5, 1024), trace_batches(5, 1024)
    for _ in range(5):
        batch, again = next(first), next(second)
        assert torch.equal(batch.token_ids, again.token_ids)
        assert batch.token_ids.shape[1] % 16 == 0
        assert batch.token_ids.numel() <= 1024
        assert not batch.weights[batch.token_ids == PAD_ID].any()


def test_trace_loss_is_the_mean_over_weighted_tokens() -> None:
    model = tiny_decoder()
    batch = pad_rows([([1, 20, 21, 22], [0, 0, 1, 1])], 16)
    logits = model(batch.token_ids)[0]
    wanted = functional.cross_entropy(logits[1:3], torch.tensor([21, 22]))
    assert torch.allclose(trace_loss(model, *batch), wanted)


def test_distillation_loss_is_zero_on_equal_models_and_positive_otherwise() -> None:
    policy, draft = tiny_decoder(0), tiny_decoder(1)
    batch = pad_rows([([1, 20, 21, 22], [0, 1, 1, 1])], 16)
    loss = distillation_loss(policy)
    assert loss(tiny_decoder(0), *batch).item() == pytest.approx(0, abs=1e-6)
    assert loss(draft, *batch).item() > 0.01


def test_overlap_is_one_minus_total_variation() -> None:
    policy, draft = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5])
    assert overlap(policy.log(), draft.log()).item() == pytest.approx(0.5)


def test_the_schedule_warms_up_holds_and_decays_to_zero() -> None:
    recipe = Recipe("x", TINY, seed=0, num_steps=1000, warmup_steps=100, decay_share=0.2)
    assert schedule(recipe, 0) == pytest.approx(0.01)
    assert schedule(recipe, 500) == 1
    assert schedule(recipe, 900) == pytest.approx(0.5)
    assert schedule(recipe, 999) == pytest.approx(0.005)


@pytest.mark.parametrize("shape", [(3, 16, 8), (2, 8, 16), (1, 8, 8)])
def test_orthogonalise_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    singular_values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
    assert singular_values.min() > 0.4
    assert singular_values.max() < 1.4


def test_an_optimizer_step_lowers_the_loss_and_restores_from_its_state() -> None:
    model = tiny_decoder()
    optimizer = Optimizer(model, 0.02, 3e-3)
    batch = next(trace_batches(0, 512))
    before = trace_loss(model, *batch)
    for _ in range(5):
        trace_loss(model, *batch).backward()
        optimizer.step(1.0)
    assert trace_loss(model, *batch) < before
    restored = Optimizer(model, 0.02, 3e-3)
    restored.load_state_dict(optimizer.state_dict())
    assert torch.equal(restored.muons[0].momentum, optimizer.muons[0].momentum)


def test_sampling_with_the_cache_equals_the_whole_forward_pass() -> None:
    model = tiny_decoder()
    prompts = ["C3,4>7:", "A1+2:", "C5,6>11:"]
    groups = sample(model, prompts, 2, 0.0, torch.Generator(), max_new_tokens=20)
    for prompt, group in zip(prompts, groups, strict=True):
        assert group[0] == group[1]
        token_ids = [BOS_ID, *encode(prompt)]
        for token_id in group[0].token_ids:
            assert model(torch.tensor([token_ids]))[0, -1].argmax() == token_id
            token_ids.append(token_id)
        assert token_ids[-1] == EOS_ID or len(group[0].token_ids) == 20


def test_samples_end_at_eos_and_follow_the_seed() -> None:
    model = tiny_decoder()
    draw = [sample(model, ["A1+2:"], 64, 1.0, torch.Generator().manual_seed(1), 40) for _ in range(2)]
    assert draw[0] == draw[1]
    assert all(EOS_ID not in completion.token_ids[:-1] for completion in draw[0][0])
    assert any(completion.token_ids[-1] == EOS_ID for completion in draw[0][0])


def test_labels_say_whether_the_target_is_still_reachable() -> None:
    trace = label(
        countdown.Instance((3, 7, 12), 43), "12-3=9>7,9;9*7=63>63;<wait>12*3=36>7,36;36+7=43>43;36;"
    )
    assert trace.labels == [False, False, True, True, False]
    assert trace.num_remaining == [2, 1, 2, 1, 0]
    assert [trace.token_ids[mark] for mark in trace.marks] == [STEP_MARK_ID] * 5
    assert trace.legal == [True, True, True, True, False]
    trace = label(arithmetic.Instance("12+7*3-5"), "7*3=22>12+22-5;12-5=7>7+21;what;")
    assert trace.labels == [False, True, False]
    assert trace.num_remaining == [3, 2, 1]


def test_random_and_corrupted_traces_have_a_label_at_each_mark() -> None:
    rng = random.Random(0)
    traces = [random_trace(rng, Split.TRAIN) for _ in range(20)]
    traces += [corrupted_trace(rng, task, Split.TRAIN) for task in (countdown, arithmetic) for _ in range(20)]
    assert all(len(trace.marks) == len(trace.labels) == len(trace.num_remaining) for trace in traces)
    flat = [reachable for trace in traces for reachable in trace.labels]
    assert any(flat)
    assert not all(flat)
    batches = epoch_batches(traces, 512, rng)
    assert sorted(id(trace) for batch in batches for trace in batch) == sorted(map(id, traces))


def test_near_miss_prefixes_are_legal_and_balanced() -> None:
    rng = random.Random(0)
    traces = [near_miss_trace(rng, Split.TRAIN) for _ in range(300)]
    assert all(all(trace.legal) and trace.num_remaining[-1] == 2 for trace in traces)
    reachable = sum(trace.labels[-1] for trace in traces)
    assert 120 < reachable < 210


def random_reward_model() -> RewardModel:
    """A reward model with random weights everywhere."""
    torch.manual_seed(0)
    model = RewardModel(TINY).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("weight", ["gate_proj", "up_proj", "down_proj"])
def test_pruning_drops_first_the_neurons_that_do_nothing(weight: str) -> None:
    model = random_reward_model()
    idle = [1, 4, 23]
    with torch.no_grad():
        for layer in model.model.layers:
            matrix = getattr(layer.mlp, weight).weight
            (matrix.T if weight == "down_proj" else matrix)[idle] = 0
    pruned = prune_neurons(model, TINY.intermediate_size - len(idle)).eval()
    token_ids = torch.tensor([[BOS_ID, *encode("C3,7,12>43:12*3=36>7,36;")]])
    assert torch.allclose(pruned(token_ids), model(token_ids), atol=1e-5)
    assert pruned.config.intermediate_size == TINY.intermediate_size - len(idle)


def test_a_pruned_model_is_a_copy_and_leaves_its_origin_as_it_was() -> None:
    model = random_reward_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pruned = prune_neurons(model, 4)
    with torch.no_grad():
        for parameter in pruned.parameters():
            parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_mark_values_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    model = RewardModel(TINY).eval()
    rng = random.Random(0)
    traces = [random_trace(rng, Split.TRAIN) for _ in range(10)]
    together = mark_values(model, traces)
    for trace, values in zip(traces, together, strict=True):
        assert values == pytest.approx(mark_values(model, [trace])[0], abs=1e-5)


def test_auroc_counts_ordered_pairs() -> None:
    assert auroc(MarkScores([0.1, 0.4, 0.35, 0.8], [False, False, True, True])) == pytest.approx(0.75)
    assert auroc(MarkScores([0.5, 0.5], [False, True])) == pytest.approx(0.5)
    assert math.isnan(auroc(MarkScores([0.5], [True])))


def test_majority_ignores_abstentions_and_takes_the_earliest_of_a_tie() -> None:
    assert majority([None, None, "3", "4", "4"]) == "4"
    assert majority(["5", "4", "4", "5"]) == "5"
    assert majority([None]) is None


def test_rates_carry_an_interval_around_the_mean() -> None:
    result = rate([1.0] * 70 + [0.0] * 30)
    assert result.value == 0.7
    assert 0.59 < result.low < 0.63
    assert 0.77 < result.high < 0.81
