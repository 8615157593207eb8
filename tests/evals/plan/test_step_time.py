"""The time of a step: the bounds' own where they speak of the same step, and what must hold of any."""

import pytest
from branchwise.engine.models.config import ModelConfig, parse_config
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import ModelPlan, Sample, Span
from branchwise.evals.plan.gpus import find_gpu
from branchwise.evals.plan.machine import Machine
from branchwise.evals.plan.step_time import StepClock
from branchwise.kernels.bounds import H200, LLAMA_8B, best_of, decode_step
from hypothesis import given
from hypothesis import strategies as st

BLOCK = 32


def llama_8b(**fields: object) -> ModelConfig:
    return parse_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": LLAMA_8B.vocabulary,
            "hidden_size": LLAMA_8B.hidden,
            "intermediate_size": LLAMA_8B.intermediate,
            "num_hidden_layers": LLAMA_8B.layers,
            "num_attention_heads": LLAMA_8B.heads,
            "num_key_value_heads": LLAMA_8B.kv_heads,
            "max_position_embeddings": 8192,
            "rope_theta": 500_000.0,
            **fields,
        },
        "a test",
    )


def clock(config: ModelConfig | None = None, machine: Machine | None = None) -> StepClock:
    return StepClock(
        config or llama_8b(),
        machine or find_gpu("H200", host=False),
        element_bytes=2,
        block_size=BLOCK,
        num_blocks=1 << 14,
    )


def decode(samples: int, prompt: int, answer: int, *, shared: bool = True) -> ModelPlan:
    """One row for each sample, `answer` positions behind a prompt that all hold, or each for itself."""
    spans, following = [], 1 + prompt // BLOCK
    for index in range(samples):
        start = prompt + answer - 1
        own = start // BLOCK + 1 - (prompt // BLOCK if shared else 0)
        blocks = (*(range(1, 1 + prompt // BLOCK) if shared else ()), *range(following, following + own))
        following += own
        sample = Sample(SeqId(index), index, start + 1, SamplingParams())
        spans.append(Span(SeqId(index), start, (7,), blocks, start, (sample,)))
    return ModelPlan("policy", tuple(spans))


@pytest.mark.parametrize(
    ("samples", "prompt", "answer"), [(64, 2048, 512), (8, 2048, 512), (128, 1024, 1024)]
)
def test_a_decode_step_takes_what_the_bounds_say(samples: int, prompt: int, answer: int) -> None:
    found = clock().seconds(decode(samples, prompt, answer))
    bound = decode_step(LLAMA_8B, best_of(samples, prompt, answer, items=4), H200)
    assert found.products + found.attention + found.head == pytest.approx(bound, rel=0.06)
    assert found.host == 0
    assert found.other < 0.05 * found.total


@given(samples=st.integers(1, 64), prompt=st.integers(1, 40), answer=st.integers(1, 300))
def test_sharing_a_prompt_never_takes_longer(samples: int, prompt: int, answer: int) -> None:
    shared, apart = (decode(samples, prompt * BLOCK, answer, shared=each) for each in (True, False))
    assert clock().seconds(shared).total <= clock().seconds(apart).total
    assert clock().seconds(shared).products == clock().seconds(apart).products


@given(samples=st.integers(1, 64), faster=st.floats(1, 8))
def test_a_faster_machine_takes_as_much_less(samples: int, faster: float) -> None:
    slow = find_gpu("A100", host=False)
    quick = Machine(
        name="quick",
        bytes_per_s=slow.bytes_per_s * faster,
        flops_per_s=slow.flops_per_s * faster,
        memory_bytes=slow.memory_bytes,
    )
    plan = decode(samples, 256, 100)
    assert clock(machine=quick).seconds(plan).total == pytest.approx(
        clock(machine=slow).seconds(plan).total / faster
    )


def test_a_prompt_is_bound_by_operations_and_a_row_by_bytes() -> None:
    prompt = ModelPlan("policy", (Span(SeqId(1), 0, (7,) * 2048, tuple(range(1, 65)), 0),))
    flops = 2 * llama_8b().cost.block_params * 2048
    assert clock().seconds(prompt).products == pytest.approx(flops / H200.flops_per_s)
    one = clock().seconds(decode(1, 32, 1)).products
    assert one == pytest.approx(2 * llama_8b().cost.block_params / H200.bytes_per_s, rel=0.01)


def test_a_window_bounds_what_a_row_reads() -> None:
    fields = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    narrow, wide = (llama_8b(**fields, sliding_window=window) for window in (512, None))
    plan = decode(8, 4096, 10, shared=False)
    ratio = clock(wide).seconds(plan).attention / clock(narrow).seconds(plan).attention
    assert ratio == pytest.approx(4106 / 512, rel=0.03)


def test_the_head_is_computed_once_for_each_row_that_asks() -> None:
    """Children that are forked before their first token draw from one row."""
    samples = tuple(Sample(SeqId(index), index, 32, SamplingParams()) for index in range(64))
    prompt = Span(SeqId(1), 0, (7,) * 32, (1,), 0, samples[:1])
    one = clock().seconds(ModelPlan("policy", (prompt,)))
    forked = Span(SeqId(1), 0, (7,) * 32, (1,), 0, samples)
    many = clock().seconds(ModelPlan("policy", (forked,)))
    sweeps = 63 * 2 * 4 * LLAMA_8B.vocabulary / H200.bytes_per_s
    assert many.head - one.head == pytest.approx(sweeps)


def test_each_drawn_token_takes_the_hosts_time() -> None:
    with_host = clock(machine=find_gpu("H200"))
    assert with_host.seconds(decode(64, 64, 1)).host == pytest.approx(64 * find_gpu("H200").draw_s)
