"""Ctrl-C keeps the best so far; a second one ends at once."""

import os
import signal
import subprocess
import sys
import time

import anyio
import pytest
from branchwise.reasoning.cli.interrupt import interruptible

BRANCHWISE = [sys.executable, "-c", "from branchwise.reasoning.cli.main import main; main()"]


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_sets_the_event(signum: signal.Signals, status: int) -> None:
    async def run() -> int:
        async with interruptible() as interrupt:
            assert interrupt.status == 0
            signal.raise_signal(signum)
            with anyio.fail_after(5):
                await interrupt.event.wait()
        return interrupt.status

    assert anyio.run(run) == status


def test_the_second_signal_ends_the_process_and_restores_the_terminal() -> None:
    code = (
        "import anyio, signal\n"
        "from branchwise.reasoning.cli.interrupt import interruptible\n"
        "async def run():\n"
        "    async with interruptible(lambda: print('restored', flush=True)) as interrupt:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        await interrupt.event.wait()\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        await anyio.sleep(60)\n"
        "anyio.run(run)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "restored\n", "")


def test_ctrl_c_prints_the_best_so_far() -> None:
    arguments = [
        "solve",
        "Use 2, 3 and 5 to make 97",
        "--strategy",
        "best_of_n(n=4096)",
        "--budget",
        "tokens=9M",
    ]
    process = subprocess.Popen(
        [*BRANCHWISE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = ""
    while not first.startswith("budget:"):
        first = process.stdout.readline()
        assert first, process.communicate()
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "ended: cancelled" in out
    assert out.startswith("answer: ")
    assert err == ""


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [*BRANCHWISE, "strategies"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=30) == 141
    assert err == b""
