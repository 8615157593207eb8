"""The verifier `code`: examples of a problem's text, and what a program that meets them is worth."""

import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.verifiers import sandbox as sandbox_module
from branchwise.verifiers.base import Candidate
from branchwise.verifiers.code import Limits
from branchwise.verifiers.examples import ExamplesVerifier, shown_tests
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.sandbox import Sandbox

DOCTESTS = '''Complete this function.

```python
from typing import List

def add_all(numbers: List[int]) -> int:
    """ Sum.
    >>> add_all([1, 2])
    3
    >>> add_all([])
    0
    >>> print(add_all([1]))
    something that is no literal
    """
```'''
ASSERTS = """Write a program. It should pass these tests:
```python
assert twice(2) == 4
assert twice('a') == 'aa'
```"""


def candidate(conclusion: str) -> Candidate:
    return Candidate(
        problem=Problem(text=""),
        tokens=(),
        steps=(),
        thinking="",
        conclusion=conclusion,
        answer=None,
        complete=True,
        lease=None,  # pyright: ignore[reportArgumentType]
    )


def test_examples_become_tests():
    assert shown_tests(DOCTESTS).tests == ("assert (add_all([1, 2])) == (3)", "assert (add_all([])) == (0)")
    assert shown_tests(DOCTESTS).names == ("add_all",)
    assert shown_tests(ASSERTS).tests == ("assert twice(2) == 4", "assert twice('a') == 'aa'")
    for text in ("What is 1+1?", ">>> f(1)\n", "assert that it is right", ">>> len([1])\n1"):
        with pytest.raises(UsageError, match=r"^verifier 'code' needs examples in the problem's text"):
            shown_tests(text)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "conclusion", "value"),
    [
        (DOCTESTS, "```python\ndef add_all(numbers: List[int]) -> int:\n    return sum(numbers)\n```", 1.0),
        (DOCTESTS, "    return sum(numbers)", 1.0),
        (DOCTESTS, "```python\ndef add_all(numbers):\n    return 3\n```", 0.0),
        (DOCTESTS, "```python\ndef add_all(numbers):\n    ret", 0.0),
        (DOCTESTS, "", None),
        (ASSERTS, "```python\ndef twice(x):\n    return x * 2\n```", 1.0),
        (ASSERTS, "```python\nimport os; os._exit(0)\n```", 0.0),
        (ASSERTS, "```python\nimport time\ndef twice(x):\n    time.sleep(60)\n```", None),
    ],
)
async def test_programs_are_scored_by_the_examples(
    text: str, conclusion: str, value: float | None, anyio_backend: str
):
    limits = Limits(cpu_s=5, wall_s=3.0 if "sleep" in conclusion else 30.0)
    verifier = ExamplesVerifier(text, limits=limits, sandbox=Sandbox(None))
    score = await verifier.score(candidate(conclusion))
    assert score.value == value
    assert score.verified is None
    assert not verifier.sound
    assert not verifier.oracle


def test_without_a_sandbox_it_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_module, "sandbox_fault", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(CapabilityError, match=r"^no sandbox"):
        ExamplesVerifier.for_problem(Problem(text=ASSERTS))
