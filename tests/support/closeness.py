"""How far a result is from an exact one."""

import torch


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The norm of the difference over the norm of `expected`; NaN where `found` has one."""
    assert found.shape == expected.shape
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()
