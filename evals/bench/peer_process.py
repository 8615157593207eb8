"""A peer in a child process: asked over a pipe, stopped while it is not its turn."""

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from ...engine.errors import BranchwiseError

FOLDER = Path(__file__).parent / "peers"
ANSWER_BYTES = 1 << 28
LOAD_LIMIT_S = 900.0
"""Loading may compile."""

RUN_LIMIT_S = 3600.0


class PeerFailed(BranchwiseError):
    """A peer did not start, failed, ended early, or did something else than it was asked for."""


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`samples` continuations of `new` tokens each behind `prompt`, token ids."""

    prompt: Sequence[int]
    samples: int = 1
    new: int = 1
    temperature: float = 1.0


class PeerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One run. For each sample of each request, in order: how many tokens it got, when (seconds since the
    start), and which, as far as it was asked."""

    seconds: float
    counts: list[int]
    times: list[list[float]] = []
    tokens: list[list[int]] = []


class PeerProcess:
    """One peer with a model loaded.

    Between requests all threads of its process group are stopped (SIGSTOP): what spins while it waits would
    take time from the others. Made by `open_peer`.
    """

    def __init__(self, name: str, process: anyio.abc.Process, log: Path) -> None:
        self.name = name
        self.version = ""
        self._process = process
        self._log = log
        assert process.stdout is not None
        self._answers = BufferedByteReceiveStream(process.stdout)

    async def load(self, **arguments: Any) -> None:
        """Load the model. See `peers/worker.py` for the arguments."""
        answer = await self._ask({"load": arguments}, LOAD_LIMIT_S)
        self.version = str(answer.get("version", self.name))

    async def run(
        self, requests: Sequence[PeerRequest], *, timed: bool = False, tokens: bool = False
    ) -> PeerAnswer:
        """All requests side by side. `PeerFailed` if it did not generate what was asked."""
        message = {"requests": msgspec.to_builtins(requests), "timed": timed, "tokens": tokens}
        fields = await self._ask({"run": message}, RUN_LIMIT_S)
        try:
            answer = msgspec.convert(fields, PeerAnswer)
        except msgspec.ValidationError as error:
            raise PeerFailed(f"peer {self.name} answered something else than figures ({error})") from None
        wanted = [request.new for request in requests for _ in range(request.samples)]
        if answer.counts != wanted:
            raise PeerFailed(
                f"peer {self.name} generated {sum(answer.counts)} tokens in {len(answer.counts)} sequences, "
                f"not {sum(wanted)} in {len(wanted)}"
            )
        return answer

    async def _ask(self, message: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        try:
            with anyio.fail_after(limit_s):
                await self._process.stdin.send(json.dumps(message).encode() + b"\n")
                line = await self._answers.receive_until(b"\n", ANSWER_BYTES)
        except TimeoutError:
            raise PeerFailed(f"peer {self.name} did not answer within {limit_s:.0f} s") from None
        except (
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            anyio.EndOfStream,
            anyio.IncompleteRead,
        ):
            raise PeerFailed(f"peer {self.name} ended early: {await self._last_words()}") from None
        self._signal(signal.SIGSTOP)
        return self._read(line)

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PeerFailed(f"peer {self.name} answered {line[:80]!r}, which is no JSON object")
        if "error" in answer:
            raise PeerFailed(f"peer {self.name}: {answer['error']} (its log: {self._log})")
        return answer

    async def _last_words(self) -> str:
        """How it ended, and the last line that it wrote."""
        with anyio.move_on_after(5.0):
            await self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"exit status {self._process.returncode}, {said} (its log: {self._log})"

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End it and what it started, stopped or not."""
        self._signal(signal.SIGKILL)


@asynccontextmanager
async def open_peer(
    name: str, python: Path, log: Path, *, adapter: Path, load: Mapping[str, Any]
) -> AsyncIterator[PeerProcess]:
    """Start `adapter` under the interpreter `python` and load its model; what it prints goes to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), str(FOLDER / "worker.py"), str(adapter)]
    with log.open("wb") as errors:
        try:
            process = await anyio.open_process(command, stderr=errors, start_new_session=True)
        except OSError as error:
            raise PeerFailed(f"peer {name}: {python} does not start ({error.strerror})") from None
    peer = PeerProcess(name, process, log)
    try:
        await peer.load(**load)
        yield peer
    finally:
        peer.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()
