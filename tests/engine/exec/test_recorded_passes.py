"""Recorded passes on torch's kernels: the sizes that there are for steps of any number of rows."""

from pathlib import Path

import pytest
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import open_model
from branchwise.engine.protocol import SeqId
from branchwise.engine.sched.plan import Span
from support.driving import run, table
from support.recording import FakeRecorder
from support.tiny import save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, "Llama", num_hidden_layers=1)
    return folder


@pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])
@pytest.mark.parametrize("max_rows", [1, 5, 15, 16, 17, 44])
def test_steps_of_any_number_of_rows_can_be_recorded(
    max_rows: int, deterministic: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRANCHWISE_KERNELS", "torch")
    model = open_model(folder)
    plain = Runner(model, 8, deterministic=deterministic, max_rows=max_rows)
    recording = Runner(model, 8, deterministic=deterministic, max_rows=max_rows, recorder=FakeRecorder())
    tokens = tuple(range(max_rows))
    places = tuple(range(max_rows - 1))
    span = Span(SeqId(1), 0, tokens, table(1, max_rows), 0, logprob_at=places, targets=tokens[1:])
    expected, found = (run(runner, span).scores for runner in (plain, recording))
    assert found == expected
