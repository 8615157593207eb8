"""The process of a program that nobody trusts: it defines names and answers calls of them."""

import contextlib
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from .codec import ITEMS_MAX, Line, decode, encode


def main(socket_fd: int, cpu_s: int, memory_bytes: int) -> None:
    """Read the program from stdin, run it, then answer the referee until it ends."""
    program = sys.stdin.buffer.read().decode()
    link = socket.socket(fileno=socket_fd)
    line = Line(link.makefile("rb"), link.makefile("wb"))
    _silence()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10_000)
    names: dict[str, Any] = {"__name__": "candidate"}
    sys.modules["candidate"] = type(sys)("candidate")
    try:
        exec(compile(program, "<candidate>", "exec"), names)
    except BaseException as error:  # SystemExit too: a program that ends has not defined anything
        line.send({"raised": type(error).__name__, "text": str(error)[:200]})
        return
    line.send({"defined": sorted(name for name in names if isinstance(name, str))})
    _Answers(line, names).serve()


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


class _Answers:
    """Calls of the program's names, and of objects that it returned."""

    def __init__(self, line: Line, names: dict[str, Any]) -> None:
        self._line = line
        self._names = names
        self._kept: list[Any] = []

    def serve(self) -> None:
        while True:
            try:
                request = self._line.receive()
            except EOFError:
                return
            self._line.send(self._answer(request))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "used" in request:
            return {"value": time.process_time()}
        try:
            target = self._names[request["name"]] if "name" in request else self._find(request["object"])
            if "set" in request:
                setattr(target, request["set"], decode(request["to"], self._find))
                return {"value": None}
            if "attribute" in request:
                return {"value": self._plain(getattr(target, request["attribute"]))}
            if "arguments" not in request:
                return {"value": self._plain(target)}
            arguments = decode(request["arguments"], self._find)
            keywords = decode(request["keywords"], self._find)
            return {"value": self._plain(target(*arguments, **keywords))}
        except BaseException as error:  # SystemExit too: the call failed, the next one is answered
            return {"raised": type(error).__name__, "text": _shown(error)}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Iterator):
            return {"tuple": [encode(item, self._keep) for item in islice(value, ITEMS_MAX)]}
        return encode(value, self._keep)

    def _keep(self, value: Any) -> int:
        self._kept.append(value)
        return len(self._kept) - 1

    def _find(self, number: int) -> Any:
        return self._kept[number]


def _shown(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(error)[:200]
    return ""
