"""Worker processes: results, kills, restarts, from any thread."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from branchwise.verifiers.sandbox import sandbox_fault, worker_prefix
from branchwise.verifiers.worker import Worker, WorkerFailed, WorkerTimeout


def test_a_call_that_hangs_is_killed_and_the_next_one_gets_a_fresh_process():
    worker = Worker("time:sleep")
    assert worker.call(0, timeout_s=10) is None
    first = worker.pid
    assert first is not None
    started_s = time.monotonic()
    with pytest.raises(WorkerTimeout, match=r"no answer within 0\.3 s"):
        worker.call(60, timeout_s=0.3)
    assert time.monotonic() - started_s < 5
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert worker.call(0, timeout_s=10) is None
    assert worker.starts == 2
    worker.close()


def test_a_call_that_never_lets_go_of_the_interpreter_is_killed_too():
    worker = Worker("operator:pow")
    started_s = time.monotonic()
    with pytest.raises(WorkerTimeout):
        worker.call(7, 10**9, timeout_s=0.5)
    assert time.monotonic() - started_s < 5
    worker.close()


def test_cpu_time_is_limited_apart_from_wall_time():
    worker = Worker("operator:pow")
    with pytest.raises(WorkerTimeout, match="over 1 s of CPU time"):
        worker.call(7, 10**9, timeout_s=60, cpu_s=1)
    assert worker.call(2, 3, timeout_s=10) == 8
    assert worker.starts == 2
    sleeper = Worker("time:sleep")
    assert sleeper.call(1.2, timeout_s=60, cpu_s=1) is None
    worker.close()
    sleeper.close()


def test_what_the_function_raises_comes_back_by_name_and_the_process_stays():
    worker = Worker("operator:floordiv")
    with pytest.raises(WorkerFailed, match="ZeroDivisionError") as caught:
        worker.call(1, 0, timeout_s=10)
    assert caught.value.kind == "ZeroDivisionError"
    assert worker.call(7, 2, timeout_s=10) == 3
    assert worker.starts == 1
    worker.close()


def test_a_process_that_dies_is_one_error_and_then_replaced():
    worker = Worker("os:abort")
    with pytest.raises(WorkerFailed, match="died"):
        worker.call(timeout_s=10)
    other = Worker("operator:add")
    assert other.call(1, 2, timeout_s=10) == 3
    assert other.pid is not None
    os.kill(other.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert other.call(3, 4, timeout_s=10) == 7
    other.close()


def test_a_worker_in_a_sandbox_is_killed_whole():
    if (fault := sandbox_fault()) is not None:
        pytest.skip(fault)
    worker = Worker("time:sleep", prefix=worker_prefix())
    assert worker.call(0, timeout_s=10) is None
    group = worker.pid
    assert group is not None
    with pytest.raises(WorkerTimeout):
        worker.call(60, timeout_s=0.2)
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("processes of the worker are left")


def test_memory_is_limited():
    worker = Worker("operator:mul", memory_bytes=512 << 20)
    with pytest.raises(WorkerFailed) as caught:
        worker.call([0], 1 << 30, timeout_s=20)
    assert caught.value.kind in ("MemoryError", "died")
    worker.close()


def test_what_the_function_prints_does_not_disturb_the_protocol():
    worker = Worker("builtins:print")
    assert worker.call("x" * 100_000, timeout_s=10) is None
    worker.close()


def test_a_target_that_cannot_be_imported_says_so():
    with pytest.raises(WorkerFailed, match="No module named 'no_such_module'"):
        Worker("no_such_module:f").call(timeout_s=10)


def test_threads_share_a_worker():
    worker = Worker("operator:mul")
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: worker.call(i, i, timeout_s=20), range(40))) == [
            i * i for i in range(40)
        ]
    assert worker.starts == 1
    assert threading.current_thread() is threading.main_thread()
    worker.close()


@pytest.mark.anyio
async def test_a_task_calls_it_off_the_event_loop(anyio_backend: str):
    worker = Worker("operator:add")
    assert await anyio.to_thread.run_sync(lambda: worker.call(1, 2, timeout_s=10)) == 3
    worker.close()
