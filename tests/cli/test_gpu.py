"""The whole path on a CUDA device (`make gpu-check`)."""

import json

import pytest
from cli.command_line import Branchwise

ARGUMENTS = ("solve", "Use 3, 7 and 12 to make 43", "--strategy", "best_of_n(n=32)", "--seed", "5", "--json")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_search_on_the_gpu_solves_and_repeats(branchwise: Branchwise, dtype: str) -> None:
    first, second = (
        json.loads(branchwise(*ARGUMENTS, "--device", "cuda", "--dtype", dtype).out) for _ in range(2)
    )
    assert first["verified"] is True
    assert first["usage"].pop("engine")["kv_peak_tokens"] > 0
    second["usage"].pop("engine")
    assert first == second
