"""Every public fault on the list has a test that names it."""

from pathlib import Path

from support.pins import ENGINE_FAULTS, TESTS, pinned_faults


def test_every_fault_of_the_engine_has_a_test() -> None:
    pinned = pinned_faults()
    missing = [fault for faults in ENGINE_FAULTS.values() for fault in faults if fault not in pinned]
    assert missing == []


def test_a_fault_without_a_test_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text('@pytest.mark.pins("vllm#1")\ndef test_it(): ...\n')
    assert pinned_faults(tmp_path) == {"vllm#1": ["test_some.py"]}
    assert TESTS.name == "tests"
