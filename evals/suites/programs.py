"""HumanEval and MBPP: programs, graded by running the data set's tests in a sandbox."""

import ast
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ...engine.errors import UsageError
from ...verifiers.answer_type import AnswerType
from ...verifiers.code import CodeTests
from ...verifiers.nearest import shown
from ...verifiers.sandbox import Sandbox, open_sandbox
from . import grading
from .base import Gold, Grade, Sample, drawn
from .datasets import distinct
from .files import Row, Source, field, read_rows, text_field

MBPP_TEST_IDS = range(11, 511)


class ProgramSuite(msgspec.Struct, frozen=True):
    """Problems whose answer is a program. Programs run in a sandbox; without one they are refused, unless
    `allow_unsandboxed` says that they may run as the user."""

    name: str
    source: Source
    make: Callable[[Row, str], Sample | None]
    data: Path | None = None
    allow_unsandboxed: bool = False
    oracle: bool = True

    def samples(self, limit: int | None, seed: int) -> Sequence[Sample]:
        rows = read_rows(self.name, self.source, self.data)
        made = (self.make(row, f"{self.name}-{place}") for place, row in enumerate(rows))
        return drawn(distinct(self.name, [sample for sample in made if sample is not None]), limit, seed)

    def grade(self, sample: Sample, answer: str | None, text: str) -> Grade:
        """Raises `CapabilityError` where there is no sandbox."""
        return grading.grade(sample, answer, sandbox=self.sandbox())

    def sandbox(self) -> Sandbox:
        """Where programs run. Raises `CapabilityError` where there is no sandbox and none is not allowed."""
        return open_sandbox(allow_none=self.allow_unsandboxed)


def _humaneval(row: Row, default_id: str) -> Sample:
    prompt = text_field(row, ["prompt"], default_id)
    entry = text_field(row, ["entry_point"], default_id)
    tests = CodeTests(
        trusted=prompt, tests=(text_field(row, ["test"], default_id), f"check({entry})"), names=(entry,)
    )
    return Sample(
        id=str(row.get("task_id", default_id)),
        problem=(
            "Complete this Python function. Give the whole function in one ```python block.\n\n"
            f"```python\n{prompt.rstrip()}\n```"
        ),
        gold=Gold(AnswerType.CODE, msgspec.json.encode(tests).decode()),
        meta={"entry_point": entry, "prompt": prompt, "reference": str(row.get("canonical_solution", ""))},
    )


def _mbpp(row: Row, default_id: str) -> Sample | None:
    """None for rows outside the test split (task ids 11 to 510)."""
    task_id = _task_id(field(row, ["task_id"], default_id), default_id)
    if task_id not in MBPP_TEST_IDS:
        return None
    tests = _test_list(field(row, ["test_list", "test"], default_id), default_id)
    setup = str(row.get("test_setup_code") or "")
    reference = text_field(row, ["code"], default_id).replace("\r\n", "\n")
    try:
        names = _defined(reference) & _used((setup, *tests))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{default_id}: its code or a test is no Python ({error})") from error
    steps = (setup, *tests) if setup else tests
    gold = CodeTests(tests=steps, names=tuple(sorted(names)))
    shown = "\n".join(tests)
    return Sample(
        id=f"mbpp-{task_id}",
        problem=(
            f"{text_field(row, ['text', 'prompt'], default_id)} Give the program in one ```python block.\n\n"
            f"It should pass these tests:\n```python\n{shown}\n```"
        ),
        gold=Gold(AnswerType.CODE, msgspec.json.encode(gold).decode()),
        meta={"entry_point": _entry(tests, names), "reference": reference},
    )


def _task_id(value: object, where: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise UsageError(f"{where}: its task_id {shown(value)} is no whole number") from None


def _test_list(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(test, str) for test in value):
        raise UsageError(f"{where}: its tests {shown(value)} are no list of Python statements")
    return tuple(value)


def _parsed(program: str) -> ast.Module:
    """The syntax tree; what Python warns of (escapes in old programs) is not our concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(program)


def _defined(program: str) -> set[str]:
    """The names that a program defines at its top level."""
    names: set[str] = set()
    for node in _parsed(program).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _used(tests: Sequence[str]) -> set[str]:
    trees = [_parsed(test) for test in tests]
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _entry(tests: Sequence[str], names: set[str]) -> str:
    """The function that the first test calls."""
    calls = [node for node in ast.walk(_parsed(tests[0])) if isinstance(node, ast.Call)]
    called = [call.func.id for call in calls if isinstance(call.func, ast.Name) and call.func.id in names]
    return called[0] if called else ""


_SETS: dict[str, tuple[Source, Callable[[Row, str], Sample | None]]] = {
    "humaneval": (
        Source(folder="humaneval", file="HumanEval.jsonl.gz", hub="openai/openai_humaneval"),
        _humaneval,
    ),
    "mbpp": (Source(folder="mbpp", file="mbpp.jsonl", hub="google-research-datasets/mbpp"), _mbpp),
}

PROGRAM_SETS = tuple(_SETS)


def program_suite(name: str, data: Path | None, *, allow_unsandboxed: bool) -> ProgramSuite:
    """The suite of HumanEval or MBPP. Raises `CapabilityError` where there is no sandbox and programs may
    not run without one."""
    source, make = _SETS[name]
    suite = ProgramSuite(name, source, make, data, allow_unsandboxed)
    suite.sandbox()
    return suite
