"""The process of the tests: it runs them against stand-ins for the candidate's names, and says how it ended.

The verdict is one line on stdout with the nonce that came with the tests; nobody else knows it.
"""

import builtins
import contextlib
import json
import os
import resource
import socket
import sys
from typing import Any

from .codec import Line, decode, encode


def main(socket_fd: int, cpu_s: int, memory_bytes: int) -> None:
    """Read the tests from stdin, run them, write the verdict."""
    order = json.loads(sys.stdin.buffer.read())
    verdicts = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)  # what the tests print is no verdict
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    link = socket.socket(fileno=socket_fd)
    line = Line(link.makefile("rb"), link.makefile("wb"))
    try:
        run_tests(line, order)
        verdict = {"passed": True, "detail": "", "cpu_s": _used(line) if order["measured"] else None}
    except BaseException as error:
        verdict = {"passed": False, "detail": _told(error)}
    verdicts.write(json.dumps({"nonce": order["nonce"], **verdict}) + "\n")
    verdicts.flush()


def _used(line: Line) -> float:
    """The CPU seconds that the candidate says it used: asked of trusted ones only."""
    line.send({"used": True})
    return float(line.receive()["value"])


class CandidateRaised(Exception):
    """The candidate's code raised what is no exception of Python's own."""


def run_tests(line: Line, order: dict[str, Any]) -> None:
    """Run `trusted` and then `tests`, with a stand-in for each of `names` that the candidate defines."""
    ready = line.receive()
    if "raised" in ready:
        raise CandidateRaised(f"the program raised {ready['raised']}: {ready.get('text', '')}")
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(order["trusted"], "<trusted>", "exec"), names)
    for name in order["names"]:
        if name in ready["defined"]:
            names[name] = StandIn(line, {"name": name})
    for test in order["tests"]:
        exec(compile(test, "<tests>", "exec"), names)


class StandIn:
    """A name or an object of the candidate's; calls and attributes go there, and plain data comes back.

    Two stand-ins are equal only where they are the same object: what the candidate's `__eq__` says does not
    count.
    """

    def __init__(self, line: Line, target: dict[str, Any]) -> None:
        self.__dict__["_line"] = line
        self.__dict__["_target"] = target

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        packed = {"arguments": encode(list(arguments), _number), "keywords": encode(keywords, _number)}
        return self._asked({**self._target, **packed})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._asked({**self._target, "attribute": name})

    def __setattr__(self, name: str, value: Any) -> None:
        self._asked({**self._target, "set": name, "to": encode(value, _number)})

    def _asked(self, request: dict[str, Any]) -> Any:
        line = self._line
        line.send(request)
        reply = line.receive()
        if "raised" in reply:
            raise _exception(str(reply["raised"]), str(reply.get("text", "")))
        return decode(reply["value"], lambda number: StandIn(line, {"object": number}))


def _number(value: Any) -> int:
    """The number of a stand-in that goes back as an argument."""
    if isinstance(value, StandIn) and "object" in value._target:
        return value._target["object"]
    raise TypeError(f"a test passes a {type(value).__name__}, which is not plain data")


def _exception(name: str, text: str) -> BaseException:
    """Python's own exception of that name, so that tests may expect it."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(Exception):
            return kind(text)
    return CandidateRaised(f"{name}: {text}")


def _told(error: BaseException) -> str:
    if isinstance(error, EOFError | BrokenPipeError | ConnectionError):
        return "the program ended before its tests did"
    if isinstance(error, AssertionError):
        return f"a test failed {error}".strip()
    return f"{type(error).__name__}: {error}"[:300]
