"""Which kernels a device gets, and what a wrong wish is told."""

import importlib.util

import pytest
import torch
from branchwise.engine.errors import UsageError
from branchwise.engine.opening import load_models
from branchwise.kernels import choice
from branchwise.kernels.choice import SWITCH, ChoiceError, Family, family

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(choice, "_has_triton", lambda: request.param)


@pytest.mark.parametrize("triton", [True, False], indirect=True)
def test_the_device_decides(triton, request: pytest.FixtureRequest):
    assert family(CPU) is Family.NATIVE
    installed = request.node.callspec.params["triton"]
    assert family(GPU) is (Family.TRITON if installed else Family.TORCH)


@pytest.mark.parametrize("triton", [True], indirect=True)
def test_the_switch_goes_before_the_device(triton, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SWITCH, "torch")
    assert family(CPU) is family(GPU) is Family.TORCH
    monkeypatch.setenv(SWITCH, "triton")
    assert family(GPU) is Family.TRITON
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert family(CPU) is Family.TRITON


@pytest.mark.parametrize("triton", [True], indirect=True)
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("cuda", "BRANCHWISE_KERNELS is 'cuda': set it to torch or triton, or leave it out"),
        ("triton", "BRANCHWISE_KERNELS=triton needs a GPU, or TRITON_INTERPRET=1 for Triton's interpreter; "),
    ],
)
def test_a_wish_that_cannot_be_met_is_one_line(
    triton, asked: str, line: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(SWITCH, asked)
    with pytest.raises(ChoiceError) as caught:
        family(CPU)
    assert str(caught.value).startswith(line)
    with pytest.raises(UsageError) as told:
        load_models({"policy": "nowhere"})
    assert str(told.value) == str(caught.value)


@pytest.mark.parametrize("triton", [False], indirect=True)
def test_triton_that_was_asked_for_and_is_not_installed_is_named(triton, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SWITCH, "triton")
    with pytest.raises(ChoiceError, match=r"Triton is not installed: pip install 'branchwise\[gpu\]'"):
        family(GPU)


def test_triton_is_looked_for_without_being_loaded():
    choice._has_triton.cache_clear()
    assert choice._has_triton() is (importlib.util.find_spec("triton") is not None)
