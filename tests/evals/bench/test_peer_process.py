"""A peer is a child process with a protocol: whatever goes wrong there is one line here."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from branchwise.evals.bench.peer_process import PeerAnswer, PeerFailed, PeerProcess, PeerRequest, open_peer

LOAD = {
    "model": "m",
    "threads": 1,
    "dtype": "float32",
    "positions": 9,
    "sequences": 2,
    "prefix_cache": True,
}
TWO = [PeerRequest(prompt=(1, 2), samples=2, new=3), PeerRequest(prompt=(4,))]


def ask(adapter: Path, python: str = sys.executable, **options: Any) -> PeerAnswer:
    """Load, and run `TWO`."""

    async def once() -> PeerAnswer:
        log = adapter.parent / "logs" / "fake.log"
        async with open_peer("fake", Path(python), log, adapter=adapter, load=LOAD) as peer:
            return await peer.run(TWO, **options)

    return anyio.run(once)


def state(peer: PeerProcess) -> str:
    """The kernel's letter for what the child does: T is stopped."""
    return Path(f"/proc/{peer._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_each_sample_of_each_request_is_answered_in_order(fake: Callable[..., Path]) -> None:
    answer = ask(fake(), timed=True, tokens=True)
    assert answer.counts == [3, 3, 1]
    assert answer.tokens == [[7, 7, 7], [7, 7, 7], [7]]
    assert [len(times) for times in answer.times] == answer.counts
    assert 0 <= answer.times[0][0] <= answer.seconds


def test_what_was_not_asked_for_is_not_sent(fake: Callable[..., Path]) -> None:
    answer = ask(fake())
    assert (answer.times, answer.tokens) == ([], [])


def test_the_version_says_what_was_loaded(fake: Callable[..., Path]) -> None:
    async def version() -> str:
        async with open_peer(
            "fake", Path(sys.executable), fake().parent / "log", adapter=fake(), load=LOAD
        ) as peer:
            return peer.version

    assert anyio.run(version) == "fake 1 (float32, 1, 9, 2, True)"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the process state from /proc")
def test_a_peer_is_stopped_while_it_is_not_asked(fake: Callable[..., Path]) -> None:
    adapter = fake(on_run="assert open('/proc/self/stat').read().rpartition(')')[2].split()[0] == 'R'")

    async def states() -> list[str]:
        async with open_peer(
            "fake", Path(sys.executable), adapter.parent / "log", adapter=adapter, load=LOAD
        ) as peer:
            loaded = await settled(peer)
            await peer.run(TWO)
            return [loaded, await settled(peer)]

    async def settled(peer: PeerProcess) -> str:
        with anyio.move_on_after(10):
            while state(peer) != "T":  # noqa: ASYNC110  # the kernel's state has no event
                await anyio.sleep(0.01)
        return state(peer)

    assert anyio.run(states) == ["T", "T"]


def test_a_stopped_peer_ends_with_its_arena(fake: Callable[..., Path]) -> None:
    async def process_id() -> int:
        adapter = fake()
        async with open_peer(
            "fake", Path(sys.executable), adapter.parent / "log", adapter=adapter, load=LOAD
        ) as peer:
            return peer._process.pid

    with pytest.raises(ProcessLookupError):
        os.kill(anyio.run(process_id), 0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"on_load": "raise ValueError('no such weights')"}, "peer fake: ValueError: no such weights"),
        ({"on_run": "raise MemoryError('too many')"}, "peer fake: MemoryError: too many"),
        (
            {"on_run": "print('giving up', file=sys.stderr, flush=True); os._exit(5)"},
            "peer fake ended early: exit status 5, giving up",
        ),
        ({"on_run": "os.kill(os.getpid(), 9)"}, "peer fake ended early: exit status -9"),
        (
            {"on_load": "import absent_package"},
            "peer fake: ModuleNotFoundError: No module named 'absent_pack",
        ),
        ({"on_run": "requests = requests[:1]"}, "generated 6 tokens in 2 sequences, not 7 in 3"),
        (
            {"on_run": "requests[0]['new'] = 2"},
            "peer fake generated 5 tokens in 3 sequences, not 7 in 3",
        ),
    ],
)
def test_what_goes_wrong_is_one_line(fake: Callable[..., Path], how: dict[str, str], message: str) -> None:
    with pytest.raises(PeerFailed) as raised:
        ask(fake(**how))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_answer_that_is_no_json_is_said(tmp_path: Path) -> None:
    worker = tmp_path / "python"
    worker.write_text("#!/bin/sh\nread line\necho hello\nsleep 60\n")
    worker.chmod(0o755)
    with pytest.raises(PeerFailed, match="answered b'hello', which is no JSON object"):
        ask(tmp_path / "adapter.py", python=str(worker))


def test_an_answer_without_figures_is_said(tmp_path: Path) -> None:
    worker = tmp_path / "python"
    worker.write_text(
        "#!/bin/sh\nread line\necho '{}'\nread line\necho '{\"seconds\": \"soon\"}'\nsleep 60\n"
    )
    worker.chmod(0o755)
    with pytest.raises(PeerFailed, match="answered something else than figures"):
        ask(tmp_path / "adapter.py", python=str(worker))


def test_an_interpreter_that_does_not_start_is_said(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="absent/python does not start"):
        ask(tmp_path / "adapter.py", python="/absent/python")


def test_a_peer_that_does_not_answer_in_time_is_said(
    fake: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("branchwise.evals.bench.peer_process.RUN_LIMIT_S", 0.2)
    with pytest.raises(PeerFailed, match="did not answer within"):
        ask(fake(on_run="time.sleep(60)"))
