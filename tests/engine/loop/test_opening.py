"""The engine on real (tiny, random) models from disk: memory split, and best-of-64 on token ids."""

import shutil
from pathlib import Path

import anyio
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import CapacityError, NumericsError
from branchwise.engine.opening import load_models
from branchwise.engine.protocol import EngineUsage, Extension, ScoreParams, SeqId, Unlimited
from safetensors.torch import load_file, save_file
from support.checks import extend_params
from support.tiny import save_model

pytestmark = pytest.mark.anyio

METER = Unlimited()


@pytest.fixture
def anyio_backend() -> str:
    """Both event loops are tested on the oracle; here it is about the model."""
    return "asyncio"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "policy"
    save_model(folder, "Llama", num_hidden_layers=1, max_position_embeddings=512)
    return folder


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "prm"
    save_model(folder, "Llama", head="TokenClassification", num_labels=1, max_position_embeddings=512)
    return folder


def test_one_budget_gives_every_model_the_same_number_of_positions(policy: Path, prm: Path) -> None:
    models = load_models({"policy": policy, "prm": prm}, kv_memory=1 << 20, block_size=16)
    blocks = {model.num_blocks for model in models.values()}
    assert len(blocks) == 1
    per_block = {name: 16 * 2 * 2 * 16 * 4 * layers for name, layers in (("policy", 1), ("prm", 3))}
    assert blocks.pop() == (1 << 20) // sum(per_block.values())
    assert models["policy"].info.head == "lm"
    assert models["prm"].info.head == "reward"


def test_too_little_memory_is_refused_with_the_numbers(policy: Path) -> None:
    with pytest.raises(CapacityError, match="5000 bytes"):
        load_models({"policy": policy}, kv_memory=5000)


async def extend_all(engine: Engine, children: list[SeqId], tokens: int) -> dict[SeqId, tuple[int, ...]]:
    extended: dict[SeqId, tuple[int, ...]] = {}

    async def run(seq: SeqId) -> None:
        extended[seq] = (await engine.extend(seq, extend_params(tokens), METER)).tokens

    async with anyio.create_task_group() as group:
        for child in children:
            group.start_soon(run, child)
    return extended


@pytest.mark.parametrize("length", [400, 403])
async def test_best_of_64_shares_the_prompt_and_equals_each_alone(policy: Path, length: int) -> None:
    prompt = [(position * 7) % 250 for position in range(length)]
    engine = await Engine.open_models(
        {"policy": policy}, kv_memory=4 << 20, deterministic=True, check=True, max_step_tokens=256
    )
    async with engine:
        usage = EngineUsage()
        root = engine.open(prompt, seed=0, usage=usage)
        children = engine.fork(root, range(64))
        engine.release(root)
        together = await extend_all(engine, children, 12)
        assert usage.prefill_tokens == length
        assert usage.decode_tokens == 64 * 11
        assert usage.recomputed_tokens == 0
        assert usage.copied_blocks == (63 if length % 16 else 0)
        assert len(set(together.values())) > 32
        for seed in (0, 31, 63):
            alone = engine.open(prompt, seed=seed, namespace=f"alone {seed}")
            assert (await extend_all(engine, [alone], 12))[alone] == together[children[seed]]
            engine.release(alone)
        for child in children:
            engine.release(child)
        await engine.extend(engine.open([1], seed=0), extend_params(1), METER)
        assert engine.scheduler.memories["policy"].pool.owned == 1


async def test_the_split_of_the_memory_is_data(policy: Path, prm: Path) -> None:
    engine = await Engine.open_models({"policy": policy, "prm": prm}, kv_memory=2 << 20)
    plan = engine.memory_plan
    assert [model.model for model in plan.models] == ["policy", "prm"]
    first, second = plan.models
    assert first.blocks == second.blocks  # a reward model mirrors the policy's branches
    assert first.positions == (first.blocks - 1) * first.block_size
    assert 0.9 * (2 << 20) < plan.kv_bytes <= 2 << 20
    stored = sum(tensor.numel() * 4 for tensor in load_file(policy / "model.safetensors").values())
    assert first.weights_bytes == stored
    assert plan.weights_bytes == first.weights_bytes + second.weights_bytes


async def test_policy_and_reward_model_run_in_one_engine(policy: Path, prm: Path) -> None:
    engine = await Engine.open_models({"policy": policy, "prm": prm}, kv_memory=2 << 20, check=True)
    async with engine:
        prompt = list(range(40))
        seq, mirror = engine.open(prompt, seed=1), engine.open(prompt, seed=1, model="prm")
        step = await engine.extend(seq, extend_params(8), METER)
        engine.append(mirror, step.tokens)
        scores = await engine.score(mirror, ScoreParams(reward_at=(43, 47)), METER)
        logprobs = await engine.score(seq, ScoreParams(logprobs_from=40), METER)
        assert len(scores.rewards) == 2
        assert all(0.0 <= reward <= 1.0 for reward in scores.rewards)
        assert logprobs.logprobs == pytest.approx(step.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_row_of_nan_on_a_real_model_harms_no_other(
    policy: Path, tmp_path: Path, temperature: float
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(policy, broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["model.embed_tokens.weight"][299] = float("nan")
    save_file(tensors, broken / "model.safetensors")
    engine = await Engine.open_models({"policy": broken}, kv_memory=1 << 20, check=True)
    params = extend_params(6, temperature=temperature)
    found: dict[int, Extension | NumericsError] = {}

    async def run(first: int) -> None:
        try:
            seq = engine.open([first, *range(40)], seed=7)
            found[first] = await engine.extend(seq, params, METER)
        except NumericsError as error:
            found[first] = error

    async with engine:
        async with anyio.create_task_group() as group:
            for first in (5, 299, 6):
                group.start_soon(run, first)
        assert isinstance(found[299], NumericsError)
        alone = await engine.extend(engine.open([5, *range(40)], seed=7, namespace="alone"), params, METER)
        assert isinstance(found[5], Extension)
        assert found[5].tokens == alone.tokens
        assert isinstance(found[6], Extension)
        again = engine.open([299, *range(40)], seed=7)  # no hit on KV that is not sound
        with pytest.raises(NumericsError):
            await engine.extend(again, params, METER)
        assert engine.scheduler.counters.spoiled_requests == 2
        assert engine.scheduler.counters.cached_tokens == 0
