"""How KV memory follows from what steps take."""

import weakref
from pathlib import Path
from typing import Any

import pytest
from branchwise.engine.errors import CapacityError
from branchwise.engine.exec.cache import bytes_per_block
from branchwise.engine.exec.probe import step_bytes
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import open_model
from branchwise.engine.opening import CPU_KV_BYTES, GPU_RESERVE_BYTES, blocks_in, default_kv_memory
from support.tiny import save_model

OPTIONS = {"block_size": 16, "max_rows": 40, "deterministic": False}


class CountedGauge:
    """`free` bytes, and a peak of `used` after each start."""

    def __init__(self, free: int, used: int) -> None:
        self.free, self.used, self.started = free, used, 0

    def free_bytes(self) -> int:
        return self.free

    def start(self) -> None:
        self.started += 1

    def peak_bytes(self) -> int:
        return self.used


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, "Llama", max_position_embeddings=24)
    return path


@pytest.mark.parametrize("head", [{}, {"head": "TokenClassification", "num_labels": 2}], ids=["lm", "reward"])
def test_the_largest_steps_run_and_their_small_pool_is_not_counted(head, tmp_path: Path):
    family = "Qwen2" if head else "Llama"
    save_model(tmp_path, family, max_position_embeddings=24, **head)
    model = open_model(tmp_path)
    pool = 3 * bytes_per_block(
        model.decoder.shape, 16, model.decoder.dtype
    )  # 24 positions and the trash block
    gauge = CountedGauge(0, pool + 1000)
    assert step_bytes(model, gauge, **OPTIONS) == 1000
    assert gauge.started == 1


class Allocator:
    """Implements `Gauge` for memory that runners hold as long as they live, and their model for good."""

    def __init__(self, free: int, runner: int, model: int) -> None:
        self.free, self.runner, self.model = free, runner, model
        self.lent = False
        self.runners: weakref.WeakSet[Runner] = weakref.WeakSet()

    def made(self, *arguments: Any, **options: Any) -> Runner:
        runner = Runner(*arguments, **options)
        self.runners.add(runner)
        self.lent = True
        return runner

    @property
    def held(self) -> int:
        return len(self.runners) * self.runner + self.lent * self.model

    def free_bytes(self) -> int:
        return self.free - self.held

    def start(self) -> None:
        assert not self.runners

    def peak_bytes(self) -> int:
        return self.runner + self.model - self.held


def test_memory_that_the_probe_leaves_with_the_model_is_taken_off_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is not free any more when KV is measured out: taken off again as part of the steps it would lie
    idle."""
    model = open_model(folder)
    pool = 3 * bytes_per_block(model.decoder.shape, 16, model.decoder.dtype)
    allocator = Allocator(GPU_RESERVE_BYTES + 10_000_000, pool + 1_000_000, 300_000)
    monkeypatch.setattr("branchwise.engine.exec.probe.Runner", allocator.made)
    assert default_kv_memory([model], allocator, **OPTIONS) == 10_000_000 - 1_000_000 - 300_000


def test_kv_takes_what_is_free_less_the_steps_of_all_models(folder: Path):
    models = [open_model(folder), open_model(folder)]
    pool = 3 * bytes_per_block(models[0].decoder.shape, 16, models[0].decoder.dtype)
    gauge = CountedGauge(GPU_RESERVE_BYTES + 10_000_000, pool + 1_000_000)
    assert default_kv_memory(models, gauge, **OPTIONS) == 8_000_000
    assert default_kv_memory(models, None, **OPTIONS) == CPU_KV_BYTES


def test_too_little_memory_is_said_with_its_numbers(folder: Path):
    model = open_model(folder)
    kv = default_kv_memory([model], CountedGauge(1000, 0), **OPTIONS)
    assert kv == 0
    with pytest.raises(CapacityError, match="0 bytes of KV memory are too few: 16 positions take"):
        blocks_in(kv, [model], 16)
