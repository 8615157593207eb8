"""The stand-in for CUDA graphs lets through what a graph can repeat, and nothing else."""

import pytest
import torch
from support.recording import FakeRecorder, NotStatic


def test_a_replay_fills_the_first_result_from_what_the_inputs_hold_now():
    x, weight = torch.zeros(4), torch.arange(4.0)
    replay = FakeRecorder().record(lambda: (x * weight).add_(1.0))
    first = replay()
    address = first.data_ptr()
    x.fill_(2.0)
    again = replay()
    assert again.data_ptr() == address
    assert again.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_writes_into_outer_tensors_are_repeated():
    x, out = torch.ones(3), torch.zeros(3)
    replay = FakeRecorder().record(lambda: out.copy_(x))
    x.fill_(5.0)
    assert replay().data_ptr() == out.data_ptr()
    assert out.tolist() == [5.0] * 3


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: x * torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x * float(x[0]),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
    ],
    ids=["constant of the host", "item", "nonzero", "mask"],
)
def test_what_waits_for_the_device_or_brings_values_of_the_host_is_refused(fault):
    with pytest.raises(NotStatic):
        FakeRecorder().record(lambda: fault(X))


X = torch.ones(3)


def test_a_tensor_that_moved_is_refused():
    held = {"x": torch.ones(3)}
    replay = FakeRecorder().record(lambda: held["x"] * 2)
    replay()
    held["other"] = held["x"]
    held["x"] = torch.ones(3)
    with pytest.raises(NotStatic, match="elsewhere when the work was recorded"):
        replay()


def test_work_that_takes_another_way_is_refused():
    x, y, way = torch.ones(3), torch.ones(3), ["short"]
    replay = FakeRecorder().record(lambda: x + y if way == ["short"] else x + y + x)
    way[0] = "long"
    with pytest.raises(NotStatic, match="3 uses of outer tensors, 2 when"):
        replay()
