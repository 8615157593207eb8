"""Many clients at once, a third of them leaving: nothing leaks, nothing crosses."""

import anyio
import pytest

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("httpx", reason="needs httpx")

from branchwise.serve.load import Figures, own_server, run_load


@pytest.mark.slow
def test_forty_clients_for_ten_seconds_leave_nothing_behind() -> None:
    async def run() -> Figures:
        async with own_server("--running", "12", "--waiting", "20", "--kv-memory", "64MiB") as url:
            return await run_load(url, clients=40, seconds=10)

    figures = anyio.run(run)
    assert figures.leaked_blocks == figures.crossed == figures.failed == 0
    assert min(figures.finished, figures.left, figures.refused) > 0
    assert figures.finished + figures.left + figures.refused == figures.requests
    assert figures.memory_before is not None
    assert figures.memory_after is not None
    assert figures.memory_after < figures.memory_before + 128 * 2**20
