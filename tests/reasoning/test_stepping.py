"""The option that cuts steps otherwise."""

import pytest
from branchwise.engine.errors import UsageError
from branchwise.reasoning.stepping import Stepping, parse_step


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Stepping()),
        ("tokens:64", Stepping(tokens=64)),
        ("mark:\\n\\n", Stepping(mark="\n\n")),
        ("mark:→", Stepping(mark="→")),
        ("mark:\\x", Stepping(mark="\\x")),
        ("mark:a\\\\n", Stepping(mark="a\\n")),
        ("mark:tokens:3", Stepping(mark="tokens:3")),
    ],
)
def test_forms(text, expected):
    assert parse_step(text) == expected


@pytest.mark.parametrize(
    "text", ["", "mark:", "tokens:0", "tokens:-1", "tokens:x", "tokens:", "words:3", "mark"]
)
def test_other_forms_are_one_clear_line(text):
    with pytest.raises(UsageError, match="mark:TEXT"):
        parse_step(text)
