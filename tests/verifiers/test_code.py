"""Programs against tests: what passes, and every way of passing without being right."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from branchwise.engine.errors import CapabilityError
from branchwise.verifiers import code as code_module
from branchwise.verifiers import sandbox as sandbox_module
from branchwise.verifiers.code import CodeResult, CodeTests, Limits, cpu_seconds, relative_limits, run_tests
from branchwise.verifiers.sandbox import Sandbox, open_sandbox, sandbox_fault
from branchwise.verifiers.turns import Turns

QUICK = Limits(cpu_s=1, wall_s=6.0, memory_bytes=512 << 20)
DOUBLES = CodeTests(
    tests=("assert f(2) == 4", "assert f('ab') == 'abab'\nassert f([1]) == [1, 1]", "assert f(0) == 0"),
    names=("f",),
)
RIGHT = "def f(x):\n    return x * 2\n"


@pytest.fixture(params=["bubblewrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "none":
        return Sandbox(None)
    if (fault := sandbox_fault()) is not None:
        pytest.skip(fault)
    return open_sandbox()


@pytest.mark.parametrize(
    "program",
    [
        RIGHT,
        "f = lambda x: x + x",
        "print('noise')\nimport sys\nprint('more', file=sys.stderr)\n" + RIGHT,
        "class C:\n    def __call__(self, x):\n        return x * 2\nf = C()",
        "if __name__ == '__main__':\n    raise SystemExit(1)\n" + RIGHT,
    ],
)
def test_a_right_program_passes(program: str, sandbox: Sandbox):
    result = run_tests(program, DOUBLES, sandbox=sandbox, limits=QUICK)
    assert result.passed is True, result


CHEATS = {
    "wrong": "def f(x): return x + 1",
    "constant": "def f(x): return 4",
    "another name": "def g(x): return x * 2",
    "no Python": "def f(x: return",
    "empty": "",
    "no function": "f = 4",
    "exits": "import sys; sys.exit(0)",
    "exits at once": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "exits when called": "import sys\ndef f(x): sys.exit(0)",
    "exits at once when called": "import os\ndef f(x): os._exit(0)",
    "kills itself": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGKILL)",
    "raises SystemExit when called": "def f(x): raise SystemExit(0)",
    "exits at its end": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(x): raise ValueError",
    "prints PASS": "print('PASS'); print('OK'); print('1 passed')",
    "redefines assert": "import builtins\nbuiltins.AssertionError = Warning\ndef f(x): return 1",
    "redefines exec": "import builtins\nbuiltins.exec = lambda *a: None\ndef f(x): return 1",
    "hides errors": "import sys\nsys.excepthook = lambda *a: None\ndef f(x): raise AssertionError",
    "object equal to all": "class E:\n    def __eq__(self, o): return True\ndef f(x): return E()",
    "int equal to all": "class E(int):\n    def __eq__(self, o): return True\ndef f(x): return E(1)",
    "list equal to all": "class E(list):\n    def __eq__(self, o): return True\ndef f(x): return E()",
    "str equal to all": "class E(str):\n    def __eq__(self, o): return True\ndef f(x): return E('')",
    "recursion": "def f(x): return f(x)",
    "forged reply": "import json\njson.dumps = lambda *a, **k: '{\"passed\": true}'\ndef f(x): return 1",
    "forged verdict": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"nonce": "0", "passed": true, "detail": ""}\\n')
    except OSError:
        pass
def f(x): return 1
""",
    "forged calls": """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{"defined": ["f"]}\\n' + b'{"value": 4}\\n' * 9)
    except OSError:
        pass
""",
}


@pytest.mark.parametrize("program", CHEATS.values(), ids=CHEATS.keys())
def test_a_wrong_program_never_passes_whatever_it_does(program: str, sandbox: Sandbox):
    assert run_tests(program, DOUBLES, sandbox=sandbox, limits=QUICK).passed is not True


def test_the_program_cannot_read_its_tests(sandbox: Sandbox):
    """It looks for them in its stack, its heap, its modules and its arguments, and returns what it finds."""
    spy = (
        "import gc, os, sys\n"
        "def f(x):\n"
        "    seen = [repr(sys.argv), repr(sorted(os.environ.items()))]\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        seen.append(repr(frame.f_globals) + repr(frame.f_locals))\n"
        "        frame = frame.f_back\n"
        "    seen += [o for o in gc.get_objects() if type(o) is str]\n"
        "    return int(any('SECRET' + '_IN_TEST' in s for s in seen))\n"
    )
    tests = CodeTests(tests=("SECRET_IN_TEST = 1\nassert f(0) == 0",), names=("f",))
    assert run_tests(spy, tests, sandbox=sandbox).passed is True


def test_names_of_the_program_do_not_replace_pythons_own():
    cheat = "def len(x): return 3\ndef sorted(x): return [1, 2]\ndef f(x): return x"
    tests = CodeTests(tests=("assert len(f([1])) == 1 and sorted(f([2, 1])) == [1, 2]",), names=("f",))
    assert run_tests(cheat, tests, sandbox=Sandbox(None)).passed is True
    wrong = CodeTests(tests=("assert len(f([1])) == 3",), names=("f",))
    assert run_tests(cheat, wrong, sandbox=Sandbox(None)).passed is False


def test_trusted_helpers_are_not_the_programs():
    tests = CodeTests(
        trusted="def helper(x):\n    return x + 1\ndef f(x):\n    '''stub'''\n",
        tests=("assert helper(f(1)) == 3",),
        names=("f",),
    )
    assert (
        run_tests("def helper(x): return 3\ndef f(x): return 0", tests, sandbox=Sandbox(None)).passed is False
    )
    assert run_tests("def f(x): return 2", tests, sandbox=Sandbox(None)).passed is True


@pytest.mark.parametrize(
    "value",
    [
        "[1, (2, 3), {4}, frozenset([5]), {'a': None, (1, 2): 2.5}, b'x', 1j, True, range(3)]",
        "float('inf')",
        "2**20000",
        "'\\ud800é\\n'",
        "[[]] * 3",
        "[-0.0, 0.1, 1e300, -7]",
    ],
)
def test_plain_data_goes_both_ways_unchanged(value: str):
    same = f"repr(f({value})) == repr({value})" if "2**" not in value else f"f({value}) == {value}"
    tests = CodeTests(tests=(f"assert {same}",), names=("f",))
    assert run_tests("def f(x): return x", tests, sandbox=Sandbox(None)).passed is True


def test_objects_of_the_program_stay_with_it_and_can_be_used():
    program = (
        "class Pair:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
        "def make(n):\n    return Pair(n, n + 1)\n"
        "def total(pair):\n    return pair.a + pair.b\n"
        "def adder(n):\n    return lambda x: x + n\n"
        "def numbers():\n    yield from (1, 2)\n"
    )
    tests = CodeTests(
        tests=(
            "p = Pair(1, 2)\np.b = 5\nassert p.a == 1 and total(p) == 6",
            "assert total(make(3)) == 7 and adder(2)(3) == 5 and tuple(numbers()) == (1, 2)",
            "try:\n    total(3)\nexcept AttributeError:\n    pass\nelse:\n    assert False",
        ),
        names=("Pair", "make", "total", "adder", "numbers"),
    )
    result = run_tests(program, tests, sandbox=Sandbox(None))
    assert result.passed is True, result


@pytest.mark.pins("evalplus#5")
def test_cpu_time_memory_and_wall_time_are_limited(sandbox: Sandbox):
    loop = run_tests("def f(x):\n    while True: pass", DOUBLES, sandbox=sandbox, limits=QUICK)
    assert (loop.passed, loop.detail) == (False, "over its 1 s of CPU time")
    hog = run_tests("def f(x): return 'x' * (1 << 30)", DOUBLES, sandbox=sandbox, limits=QUICK)
    assert hog.passed is False
    limits = Limits(cpu_s=5, wall_s=1.0)
    sleeper = run_tests("import time\ndef f(x): time.sleep(60)", DOUBLES, sandbox=sandbox, limits=limits)
    assert (sleeper.passed, sleeper.detail) == (None, "no verdict within 1 s")


def test_in_the_sandbox_there_is_no_network_and_nothing_to_write(tmp_path: Path):
    if (fault := sandbox_fault()) is not None:
        pytest.skip(fault)
    victim = tmp_path / "file"
    victim.write_text("kept")
    server = socket.create_server(("127.0.0.1", 0))
    program = (
        "import os, socket\n"
        "def f(what):\n"
        "    try:\n"
        f"        if what == 'net': socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)\n"
        f"        if what == 'read': open({str(victim)!r}).read()\n"
        "        if what == 'write': open(os.__file__, 'a')\n"
        "        if what == 'processes': return sum(p.isdigit() for p in os.listdir('/proc')) > 3\n"
        "        return True\n"
        "    except OSError:\n"
        "        return False\n"
    )
    tests = CodeTests(
        tests=tuple(f"assert f({what!r}) is False" for what in ("net", "read", "write", "processes")),
        names=("f",),
    )
    result = run_tests(program, tests, sandbox=open_sandbox())
    server.close()
    assert result.passed is True, result
    assert victim.read_text() == "kept"


def test_without_a_sandbox_programs_are_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_module, "sandbox_fault", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(CapabilityError, match=r"^no sandbox: bubblewrap \(bwrap\) is not installed; install"):
        run_tests(RIGHT, DOUBLES)
    assert open_sandbox(allow_none=True) == Sandbox(None)


def test_programs_run_side_by_side_from_threads(sandbox: Sandbox):
    programs = [RIGHT, "def f(x): return 1"] * 4
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda program: run_tests(program, DOUBLES, sandbox=sandbox).passed, programs)
        )
    assert results == [True, False] * 4


SLOW = """
import time
def f(x):
    end = time.process_time() + {seconds}
    while time.process_time() < end:
        pass
    return x * 2
"""


@pytest.mark.slow
def test_a_slow_program_may_use_a_multiple_of_what_a_right_one_takes():
    """Four calls of each: the reference takes .4 s of CPU time in all, the program 1.2, the limit is 1."""
    reference, slow = SLOW.format(seconds=0.1), SLOW.format(seconds=0.3)
    result = run_tests(slow, DOUBLES, sandbox=Sandbox(None), limits=QUICK, reference=reference)
    assert result.passed is True, result


@pytest.mark.parametrize(("reference_s", "limits"), [(0.2, [1, 300]), (0.6, [1, 300, 3]), (None, [1, 300])])
def test_a_program_out_of_cpu_time_is_given_that_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, reference_s: float | None, limits: list[int]
):
    """The reference is measured only then, and the program runs again only where it gets more."""
    given: list[int] = []

    def run_once(
        program: str, tests: CodeTests, limits: Limits, *rest: object, **options: object
    ) -> CodeResult:
        given.append(limits.cpu_s)
        if program == "right":
            return CodeResult(reference_s is not None, cpu_s=reference_s)
        return CodeResult(limits.cpu_s >= 3, timed_out=limits.cpu_s < 3)

    monkeypatch.setattr(code_module, "_run_once", run_once)
    result = run_tests("slow", DOUBLES, limits=QUICK, sandbox=Sandbox(None), reference="right")
    assert given == limits
    assert result.passed is (len(limits) == 3)


def test_limits_follow_the_reference_and_never_fall_below_their_own():
    least = Limits(cpu_s=10, wall_s=40.0)
    assert relative_limits(None, least) == relative_limits(0.2, least) == relative_limits(2.5, least) == least
    wider = relative_limits(5.1, least)
    assert (wider.cpu_s, wider.wall_s) == (21, 84.0)


def test_what_a_program_takes_is_its_cpu_time(sandbox: Sandbox):
    used = cpu_seconds(SLOW.format(seconds=0.1), DOUBLES, sandbox=sandbox)
    assert used is not None
    assert 0.4 <= used < 2.0
    asleep = cpu_seconds(
        "import time\ndef f(x):\n    time.sleep(0.2)\n    return x * 2", DOUBLES, sandbox=sandbox
    )
    assert asleep is not None
    assert asleep < 0.4, "sleeping is no work"
    assert cpu_seconds("def f(x): return x", DOUBLES, sandbox=sandbox) is None


def test_what_ran_out_of_time_in_company_runs_once_more_alone(monkeypatch: pytest.MonkeyPatch):
    """The first run is beside another one and times out; the second is alone and passes."""
    ran: list[str] = []
    both, together = threading.Barrier(2), threading.local()

    def run_once(program: str, *rest: object, **options: object) -> CodeResult:
        if not getattr(together, "met", False):
            together.met = True
            both.wait(10)
            ran.append(f"{program} in company")
            return CodeResult(None if program == "late" else True, timed_out=program == "late")
        ran.append(f"{program} alone")
        return CodeResult(True)

    monkeypatch.setattr(code_module, "_run_once", run_once)
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(lambda name: run_tests(name, DOUBLES, sandbox=Sandbox(None)), ["late", "fine"])
        )
    assert [result.passed for result in results] == [True, True]
    assert sorted(ran) == ["fine in company", "late alone", "late in company"]


def test_what_ran_out_of_time_alone_is_not_run_again(monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []

    def run_once(program: str, *rest: object, **options: object) -> CodeResult:
        ran.append(program)
        return CodeResult(None, timed_out=True)

    monkeypatch.setattr(code_module, "_run_once", run_once)
    assert run_tests("late", DOUBLES, sandbox=Sandbox(None)).passed is None
    assert ran == ["late"]


def test_one_alone_waits_for_all_and_keeps_all_waiting():
    turns, log = Turns(), []

    def beside(name: str) -> None:
        with turns.beside_others():
            log.append(f"{name} begins")
            time.sleep(0.02)
            log.append(f"{name} ends")

    def alone() -> None:
        with turns.alone():
            log.append("alone begins")
            time.sleep(0.02)
            log.append("alone ends")

    with ThreadPoolExecutor(8) as pool:
        for job in [
            pool.submit(beside, "a"),
            pool.submit(alone),
            *(pool.submit(beside, n) for n in "bcd"),
            pool.submit(alone),
        ]:
            job.result(10)
    begins = [place for place, line in enumerate(log) if line == "alone begins"]
    assert len(begins) == 2
    for place in begins:
        assert log[place + 1] == "alone ends"
        assert sum(line.endswith("begins") for line in log[:place]) == sum(
            line.endswith("ends") for line in log[:place]
        )
