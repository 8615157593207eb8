"""The verifier `code`: examples of a problem's text, and what a program that meets them is worth."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
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


@pytest.mark.anyio
async def test_a_cancelled_verifier_does_not_wait_for_its_program_and_kills_it(tmp_path: Path):
    """A search is over at its deadline, also where a program that it checks would run on."""
    begun = tmp_path / "pid"
    program = (
        "import os, time\n"
        f"with open({str(begun)!r} + '.part', 'w') as file:\n"
        "    file.write(str(os.getpid()))\n"
        f"os.rename({str(begun)!r} + '.part', {str(begun)!r})\n"
        "time.sleep(600)\n"
    )
    limits = Limits(cpu_s=5, wall_s=20.0)
    verifier = ExamplesVerifier(ASSERTS, limits=limits, sandbox=Sandbox(None))
    with anyio.move_on_after(60) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(verifier.score, candidate(f"```python\n{program}def twice(x): ...\n```"))
            await _until(begun.exists)
            scope.cancel()
    assert scope.cancelled_caught
    process = int(begun.read_text())
    with anyio.fail_after(15):
        await _until(lambda: not _runs(process))


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # another process makes it so
        await anyio.sleep(0.01)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_without_a_sandbox_it_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_module, "sandbox_fault", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(CapabilityError, match=r"^no sandbox"):
        ExamplesVerifier.for_problem(Problem(text=ASSERTS))
