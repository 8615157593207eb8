"""The far side of `worker.Worker`: reads requests from stdin, calls one function, writes results to stdout.

It ends when stdin ends. Its memory and CPU time are limited by the system, so that a request that its
parent no longer waits for ends too.
"""

import contextlib
import importlib
import os
import resource
import struct
import sys
from typing import IO, Any

import msgspec

_HEADER = struct.Struct(">I")


def main() -> None:
    """Serve the function named on the command line."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # what the function prints must not reach the protocol
    memory = int(os.environ.pop("BRANCHWISE_WORKER_MEMORY"))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = sys.argv[1].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        _send(replies, str(error))
        return
    _send(replies, None)
    while (header := requests.read(_HEADER.size)) and len(header) == _HEADER.size:
        cpu_s, arguments = msgspec.msgpack.decode(requests.read(_HEADER.unpack(header)[0]))
        _allow_cpu(cpu_s)
        try:
            reply = (None, function(*arguments))
            frame = msgspec.msgpack.encode(reply)
        except Exception as error:
            frame = msgspec.msgpack.encode((type(error).__name__, str(error)[:400]))
        _send_frame(replies, frame)


def _allow_cpu(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def _send(stream: IO[bytes], value: Any) -> None:
    _send_frame(stream, msgspec.msgpack.encode(value))


def _send_frame(stream: IO[bytes], frame: bytes) -> None:
    stream.write(_HEADER.pack(len(frame)) + frame)
    stream.flush()


if __name__ == "__main__":
    main()
