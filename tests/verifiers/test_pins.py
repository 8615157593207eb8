"""Every public fault of graders and votes that is named in `support.pins` has its test."""

from support.pins import GRADER_FAULTS, pinned_faults


def test_every_fault_of_graders_has_a_test():
    found = pinned_faults()
    assert [fault for faults in GRADER_FAULTS.values() for fault in faults if fault not in found] == []
