"""The operators' threads: every item once, whoever calls, in whichever process."""

import ctypes
import os
import threading

import pytest
import torch
from branchwise.kernels.native.linear import NativeLinear


@pytest.fixture
def product(native: ctypes.CDLL) -> NativeLinear:
    torch.manual_seed(0)
    return NativeLinear(native, torch.randn(1000, 64))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(product: NativeLinear, threads: int) -> None:
    x = torch.randn(70, 64)
    expected = product(x)
    torch.set_num_threads(threads)
    try:
        assert all(torch.equal(product(x), expected) for _ in range(50))
    finally:
        torch.set_num_threads(1)


def test_callers_at_the_same_time_do_not_disturb_each_other(product: NativeLinear) -> None:
    inputs = [torch.randn(20, 64) for _ in range(4)]
    expected = [product(x) for x in inputs]
    wrong: list[int] = []

    def call(index: int) -> None:
        torch.set_num_threads(2)
        if not all(torch.equal(product(inputs[index]), expected[index]) for _ in range(100)):
            wrong.append(index)

    callers = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    torch.set_num_threads(2)
    try:
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
    finally:
        torch.set_num_threads(1)
    assert wrong == []
    assert not any(caller.is_alive() for caller in callers)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes(product: NativeLinear) -> None:
    """The child has none of its parent's threads."""
    x = torch.randn(20, 64)
    torch.set_num_threads(2)
    try:
        expected = product(x)
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(product(x), expected) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(1)
