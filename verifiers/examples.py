"""The verifier `code`: programs against the examples that the problem itself shows."""

import ast
import builtins
import re
import threading
import warnings
from typing import Annotated, Self

import anyio
from msgspec import Meta

from ..engine.errors import UsageError
from .base import Candidate, Score
from .code import CodeResult, CodeTests, Limits, run_tests
from .extraction import extract_code
from .named import full_name
from .problem import Problem
from .sandbox import Sandbox, open_sandbox

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_DOCTEST = re.compile(r"^[ \t]*>>>[ \t]*(\S.*)\n(?=[ \t]*(\S.*?)[ \t]*$)", re.MULTILINE)
_ASSERTION = re.compile(r"^[ \t]*(assert\s.+)$", re.MULTILINE)


class ExamplesVerifier:
    """Runs a candidate's program against the examples in the problem's text.

    They are `>>>` examples and `assert` lines. Not sound: a program may meet the examples and be wrong.
    """

    name = "code"
    sound = False
    oracle = False
    step_scores = False
    models: tuple[str, ...] = ()

    def __init__(self, text: str, *, limits: Limits | None = None, sandbox: Sandbox | None = None) -> None:
        """Raises `UsageError` where the text shows no example, `CapabilityError` where `sandbox` is None and
        the system has none."""
        self._tests = shown_tests(text)
        self._given = _given_code(text)
        self._limits = limits
        self._sandbox = sandbox or open_sandbox()

    @classmethod
    def for_problem(
        cls,
        problem: Problem,
        *,
        cpu_s: Annotated[int, Meta(ge=1, le=3600)] = 10,
        memory_mb: Annotated[int, Meta(ge=64, le=1 << 20)] = 1024,
    ) -> Self:
        """The verifier of one problem, with the CPU seconds and the memory that a program may use; errors as
        above."""
        limits = Limits(cpu_s=cpu_s, wall_s=4.0 * cpu_s, memory_bytes=memory_mb << 20)
        made = cls(problem.text, limits=limits)
        given = {"cpu_s": (cpu_s, 10), "memory_mb": (memory_mb, 1024)}
        made.name = full_name("code", **{k: v for k, (v, default) in given.items() if v != default})
        return made

    async def score(self, candidate: Candidate) -> Score:
        """1 where the program meets all examples, 0 where it does not or is none; None without a text, or
        without a verdict in time. Cancelled, it kills the program at once."""
        if not candidate.conclusion.strip():
            return Score(detail="no program")
        program = extract_code(candidate.conclusion, self._tests.names[0])
        if program is None:
            return Score(value=0.0, detail="no complete program")
        unwanted = threading.Event()
        try:
            result = await anyio.to_thread.run_sync(
                self._run, f"{self._given}\n{program}\n", unwanted, abandon_on_cancel=True
            )
        finally:
            unwanted.set()
        return Score(value=None if result.passed is None else float(result.passed), detail=result.detail)

    def _run(self, program: str, unwanted: threading.Event) -> CodeResult:
        return run_tests(program, self._tests, limits=self._limits, sandbox=self._sandbox, unwanted=unwanted)


def shown_tests(text: str) -> CodeTests:
    """The examples in a problem's text as tests; the first of `names` is the function that they call first.

    Raises `UsageError` where there are none.
    """
    tests = [*_doctests(text), *(line for line in _ASSERTION.findall(text) if _parsed(line) is not None)]
    names = list(dict.fromkeys(name for test in tests for name in _called(test)))
    if not names:
        raise UsageError(
            "verifier 'code' needs examples in the problem's text: lines that start with >>> or assert"
        )
    return CodeTests(tests=tuple(tests), names=tuple(names))


def _doctests(text: str) -> list[str]:
    """`>>> f(1)` with its value on the line below, as an assertion; those without a literal value are left
    out."""
    tests = [f"assert ({call}) == ({value})" for call, value in _DOCTEST.findall(text) if _is_literal(value)]
    return [test for test in tests if _parsed(test) is not None]


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _parsed(program: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(program)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _called(test: str) -> list[str]:
    """The functions that a test calls and Python does not have."""
    tree = _parsed(test)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    names = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    return [name for name in names if not hasattr(builtins, name)]


def _given_code(text: str) -> str:
    """The code that the problem gives to be completed: its first fenced block that defines a function."""
    for block in _FENCED.findall(text):
        tree = _parsed(block)
        if tree is not None and any(isinstance(node, ast.FunctionDef) for node in tree.body):
            return block
    return ""
