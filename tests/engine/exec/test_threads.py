"""The number of CPU threads that an engine takes."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import torch
from branchwise.engine.engine import Engine
from branchwise.engine.exec import threads
from branchwise.engine.exec.runner import Runner
from branchwise.engine.exec.threads import SMALL_MODEL_BYTES, fastest_threads
from branchwise.engine.models.open import open_model
from support.driving import scored_logprobs
from support.tiny import save_model

TOKENS = [(37 * i * i + 11 * i + 5) % 250 for i in range(40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, "Llama")
    return folder


@pytest.fixture
def four_cores() -> Iterator[None]:
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("four_cores", "native")
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 8.0, 2: 4.5, 4: 3.0}, 4),
        ({1: 8.0, 2: 4.5, 4: 4.4}, 2),
        ({1: 8.0, 2: 7.9, 4: 9.0}, 1),
        ({1: 8.0, 2: 8.5, 4: 3.0}, 4),
    ],
)
def test_more_threads_must_be_worth_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], expected: int
) -> None:
    monkeypatch.setattr(threads, "_step_s", lambda runner, count: seconds[count])
    assert fastest_threads(Runner(open_model(folder), 8), 1 << 30) == expected
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_cores", "native")
def test_measuring_leaves_no_trace_in_the_kv(folder: Path) -> None:
    runner, fresh = (Runner(open_model(folder), 8) for _ in range(2))
    assert fastest_threads(runner, 1 << 30) in (1, 2, 4)
    assert not runner.cache.blocks[:, :, 1:].any()
    assert scored_logprobs(runner, TOKENS) == scored_logprobs(fresh, TOKENS)


@pytest.mark.usefixtures("four_cores")
def test_nothing_is_measured_where_the_number_could_show(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRANCHWISE_NATIVE", "0")
    monkeypatch.setattr(threads, "_step_s", lambda runner, count: pytest.fail("measured"))
    runner = Runner(open_model(folder), 8, deterministic=True)
    assert fastest_threads(runner, SMALL_MODEL_BYTES) == 1
    assert fastest_threads(runner, SMALL_MODEL_BYTES + 1) == 4


@pytest.mark.usefixtures("four_cores")
def test_a_number_that_was_asked_for_is_taken(folder: Path) -> None:
    async def main() -> int:
        await Engine.open_models({"policy": folder}, threads=3)
        return torch.get_num_threads()

    assert anyio.run(main) == 3
