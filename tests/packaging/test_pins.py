"""Each known fault of other engines is named by a test that would have found it."""

import pytest
from support.pins import ENGINE_FAULTS, pinned_faults


@pytest.fixture(scope="module")
def pinned() -> dict[str, list[str]]:
    return pinned_faults()


@pytest.mark.parametrize("rule", ENGINE_FAULTS)
def test_each_fault_of_a_rule_is_pinned(rule: str, pinned: dict[str, list[str]]) -> None:
    assert [fault for fault in ENGINE_FAULTS[rule] if fault not in pinned] == []


def test_no_fault_stands_under_two_rules() -> None:
    faults = [fault for rule in ENGINE_FAULTS.values() for fault in rule]
    assert sorted(set(faults)) == sorted(faults)
