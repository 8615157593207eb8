"""Machines of a plan: the table, files that describe one, rates between measured ones."""

import json
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import UsageError
from branchwise.evals.plan.gpus import DATA_SHEETS, HOST_ROW_S, HOST_STEP_S, find_gpu, gpus
from branchwise.evals.plan.machine import Machine, Rate, read_machine, write_machine
from branchwise.kernels.bounds import H200
from hypothesis import given
from hypothesis import strategies as st

LEAST = {"name": "box", "bytes_per_s": 1e12, "flops_per_s": 1e14, "memory_bytes": 10**10}


def test_the_h200_of_the_table_is_that_of_the_bounds() -> None:
    found = find_gpu("h200")
    assert (found.bytes_per_s, found.flops_per_s) == (H200.bytes_per_s, H200.flops_per_s)


def test_no_gpu_reaches_more_than_its_data_sheet_says() -> None:
    for machine in gpus():
        sheet = DATA_SHEETS[machine.name]
        assert machine.bytes_per_s < sheet.bytes_per_s
        assert machine.flops_per_s < sheet.flops_per_s
        assert machine.step_s == machine.draw_s == 0


def test_the_hosts_time_is_what_the_benchmark_has() -> None:
    """The rows of `bench overhead` in evals/bench/README.md."""
    page = (Path(__file__).resolve().parents[3] / "evals" / "bench" / "README.md").read_text()
    for rows in (64, 256):
        milliseconds = (HOST_STEP_S + rows * HOST_ROW_S) * 1e3
        assert f"overhead: rows {rows}, steps 1000" in page
        assert f"ms_per_step {milliseconds:.2f}," in page


def test_an_unknown_gpu_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="--gpu V100: not in the table; give one of H200, H100, A100"):
        find_gpu("V100")


def test_a_file_says_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    machine = Machine(**LEAST, products=(Rate(1, 1e12), Rate(64, 5e13)), draw_s=1e-6)
    write_machine(machine, tmp_path / "box.json")
    assert read_machine(str(tmp_path / "box.json")) == machine


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes_per_s": 0}, "bytes_per_s is 0.0; it must be above 0"),
        ({"memory_bytes": -1}, "memory_bytes is -1; it must be above 0"),
        ({"step_s": -1e-3}, "step_s is -0.001; it must be 0 or more"),
        ({"dtype": "int8"}, "dtype is 'int8'; give bfloat16 or float32"),
        ({"products": [[0, 1e12]]}, "products need rows and rates above 0"),
        ({"products": [[8, 1e12], [8, 2e12]]}, "products must stand by rising rows"),
        ({"bandwidth": 1}, "unknown field `bandwidth`"),
        ({"flops_per_s": "fast"}, "Expected `float`, got `str`"),
    ],
)
def test_a_file_that_describes_no_machine_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "box.json"
    path.write_text(json.dumps(LEAST | change))
    with pytest.raises(UsageError) as refused:
        read_machine(str(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b" " * (1 << 20) + b"{}"])
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "box.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"^--machine "):
        read_machine(str(path))


RATES = st.lists(
    st.tuples(st.integers(1, 4096), st.floats(1e9, 1e15)), min_size=1, max_size=6, unique_by=lambda r: r[0]
).map(lambda rates: tuple(Rate(*rate) for rate in sorted(rates)))


@given(rates=RATES, rows=st.integers(1, 8192))
def test_a_rate_between_measured_ones_takes_a_time_between_theirs(rates: tuple[Rate, ...], rows: int) -> None:
    machine = msgspec.structs.replace(Machine(**LEAST), products=rates)
    for rate in rates:
        assert machine.product_flops_per_s(rate.rows) == pytest.approx(rate.flops_per_s)
    found = machine.product_flops_per_s(rows)
    slowest = min(rate.flops_per_s for rate in rates)
    fastest = max(rate.flops_per_s for rate in rates)
    assert slowest * (1 - 1e-9) <= found <= fastest * (1 + 1e-9)


def test_without_measured_rates_every_product_runs_at_the_machines() -> None:
    assert Machine(**LEAST).product_flops_per_s(7) == LEAST["flops_per_s"]
