"""`python -m branchwise.serve.load`: many clients at once, some of which leave, and what became of them.

Needs httpx. Without `--url` it starts a server of its own on the reference model, and ends it.
"""

import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import anyio.abc
import httpx
import msgspec
import typer

from ..engine.errors import BranchwiseError

PROBLEMS = (
    "Use 3, 7 and 12 to make 43",
    "Use 2, 9 and 14 to make 32",
    "Use 3, 7, 12 and 18 to make 45",
    "Use 4, 5, 11 and 19 to make 61",
    "12 + 7*3 - 5",
    "14 + 6*3 - 9",
)
STRATEGIES = (
    "greedy",
    "best_of_n(n=4)",
    "best_of_n(n=16, select=majority)",
    "beam(n=8, width=4)",
    "chain",
    "self_consistency(n=8)",
)
TOKENS = 1000
SEEDS = 8
LEAVING = 1 / 3
LONGEST_STAY_S = 0.5
DRAIN_S = 20.0
_ADDRESS = re.compile(r"http://\S+(?=/v1)")
_FIGURE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Figures(msgspec.Struct, kw_only=True):
    """What the clients and the server saw. Times in seconds, memory in bytes, None where the server does not
    tell. `crossed` counts answers that differ from an earlier one to the same request: the seed decides
    it, not what runs beside; `leaked_blocks` are KV blocks that somebody holds when nobody searches."""

    clients: int
    seconds: float
    requests: int = 0
    finished: int = 0
    left: int = 0
    refused: int = 0
    failed: int = 0
    crossed: int = 0
    tokens_per_s: float = 0.0
    first_token_p50_s: float | None = None
    first_token_p95_s: float | None = None
    total_p50_s: float | None = None
    total_p95_s: float | None = None
    leaked_blocks: int = 0
    memory_before: int | None = None
    memory_middle: int | None = None
    memory_after: int | None = None


class Load(msgspec.Struct):
    """One load test in progress."""

    figures: Figures
    first_s: list[float] = []
    total_s: list[float] = []
    answers: dict[tuple[str, str, int], str] = {}

    async def client(self, http: httpx.AsyncClient, number: int, until: float) -> None:
        """Ask one thing after the other until the time is over."""
        rng = random.Random(number)
        while time.monotonic() < until:
            self.figures.requests += 1
            problem, strategy, seed = rng.choice(PROBLEMS), rng.choice(STRATEGIES), rng.randrange(SEEDS)
            stay_s = rng.uniform(0.0, LONGEST_STAY_S) if rng.random() < LEAVING else None
            retry_after_s = 0.0
            try:
                with anyio.move_on_after(stay_s) as stay:
                    retry_after_s = await self._ask(http, problem, strategy, seed)
                self.figures.left += stay.cancelled_caught
            except httpx.HTTPError:
                self.figures.failed += 1
            await anyio.sleep(retry_after_s)

    async def _ask(self, http: httpx.AsyncClient, problem: str, strategy: str, seed: int) -> float:
        """One request; the seconds to wait where it was refused, else 0."""
        body = {
            "model": "reference",
            "messages": [{"role": "user", "content": problem}],
            "strategy": strategy,
            "budget": {"tokens": TOKENS},
            "seed": seed,
            "stream": True,
        }
        started, first_s, content, ended = time.monotonic(), None, "", False
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            if reply.status_code == 429:
                self.figures.refused += 1
                return float(reply.headers["retry-after"])
            async for line in reply.aiter_lines():
                delta = _delta(line)
                if delta and first_s is None:
                    first_s = time.monotonic() - started
                content += delta.get("content") or ""
                ended |= line == "data: [DONE]"
        if not ended:
            self.figures.failed += 1
            return 0.0
        self.figures.finished += 1
        self.first_s.append(time.monotonic() - started if first_s is None else first_s)
        self.total_s.append(time.monotonic() - started)
        known = self.answers.setdefault((problem, strategy, seed), content)
        self.figures.crossed += known != content
        return 0.0

    def sum_up(self) -> Figures:
        """The figures with the quantiles in them."""
        figures = self.figures
        figures.first_token_p50_s, figures.first_token_p95_s = _quantiles(self.first_s)
        figures.total_p50_s, figures.total_p95_s = _quantiles(self.total_s)
        return figures


async def run_load(url: str, *, clients: int, seconds: float, key: str = "load") -> Figures:
    """Load the server at `url`, wait until it is idle, and sum up. Raises `BranchwiseError` where it does not
    become idle."""
    load = Load(Figures(clients=clients, seconds=seconds))
    headers = {"Authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=120) as http:
        for problem in PROBLEMS:  # warm: what the first requests allocate is no growth
            await load._ask(http, problem, "best_of_n(n=16, select=majority)", SEEDS)
        load.figures.finished, load.first_s, load.total_s = 0, [], []
        before = await _metrics(http)
        middle: dict[str, float] = {}
        started = time.monotonic()
        async with anyio.create_task_group() as group:
            for number in range(clients):
                group.start_soon(load.client, http, number, started + seconds)
            await anyio.sleep(seconds / 2)
            middle = await _metrics(http)
        elapsed = time.monotonic() - started
        after = await _idle(http)
    tokens = after["branchwise_http_tokens_total"] - before["branchwise_http_tokens_total"]
    load.figures.tokens_per_s = round(tokens / elapsed, 1)
    load.figures.leaked_blocks = int(after["owned_blocks"])
    memory = "process_resident_memory_bytes"
    load.figures.memory_before, load.figures.memory_middle, load.figures.memory_after = (
        int(found[memory]) if memory in found else None for found in (before, middle, after)
    )
    return load.sum_up()


async def _idle(http: httpx.AsyncClient) -> dict[str, float]:
    """The server's metrics once nobody searches, and its blocks, if they come to it, are free."""
    found: dict[str, float] = {}
    for _ in range(int(DRAIN_S * 10)):
        found = await _metrics(http)
        if not found["branchwise_searches_running"] and not found["owned_blocks"]:
            return found
        await anyio.sleep(0.1)
    if found["branchwise_searches_running"]:
        raise BranchwiseError(f"the server still searches {DRAIN_S:g} s after the last client left")
    return found


async def _metrics(http: httpx.AsyncClient) -> dict[str, float]:
    """The figures without labels, and the sum of the blocks that are owned."""
    text = (await http.get("/metrics")).text
    found: dict[str, float] = {"owned_blocks": 0.0}
    for name, labels, value in _FIGURE.findall(text):
        if not labels:
            found[name] = float(value)
        elif name == "branchwise_blocks" and 'state="owned"' in labels:
            found["owned_blocks"] += float(value)
    return found


def _delta(line: str) -> dict[str, Any]:
    """The delta of a chunk's only choice; empty for every other line."""
    if not line.startswith("data: {"):
        return {}
    choices = msgspec.json.decode(line.removeprefix("data: "))["choices"]
    return {name: text for name, text in choices[0]["delta"].items() if text} if choices else {}


def _quantiles(values: list[float]) -> tuple[float | None, float | None]:
    """Median and 95th percentile."""
    if len(values) < 2:
        return (values[0], values[0]) if values else (None, None)
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return round(cuts[9], 3), round(cuts[18], 3)


@asynccontextmanager
async def own_server(*options: str) -> AsyncIterator[str]:
    """A server on the reference model in a process of its own; its address."""
    command = [sys.executable, "-m", "branchwise.serve.command", "--port", "0", *options]
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            assert process.stdout is not None
            yield await _address(process.stdout)
        finally:
            process.terminate()


async def _address(stdout: anyio.abc.ByteReceiveStream) -> str:
    text = ""
    async for part in stdout:
        text += part.decode(errors="replace")
        if (found := _ADDRESS.search(text)) is not None:
            return found[0]
    raise BranchwiseError("the server ended before it listened")


@app.command()
def load(
    clients: Annotated[int, typer.Option(help="Clients at once.", min=1)] = 200,
    seconds: Annotated[float, typer.Option(help="For how long they ask.", min=0.1)] = 60.0,
    url: Annotated[str | None, typer.Option(help="A server; without one, its own.")] = None,
    key: Annotated[str, typer.Option(help="The API key.")] = "load",
    kv_memory: Annotated[str | None, typer.Option(help="KV memory of its own server.")] = None,
) -> None:
    """Load a server and print what became of the requests."""

    async def run() -> Figures:
        if url is not None:
            return await run_load(url, clients=clients, seconds=seconds, key=key)
        options = ["--running", "64", "--waiting", "96"]
        options += [] if kv_memory is None else ["--kv-memory", kv_memory]
        async with own_server(*options) as own:
            return await run_load(own, clients=clients, seconds=seconds, key=key)

    figures = anyio.run(run)
    for name, value in msgspec.structs.asdict(figures).items():
        typer.echo(f"{name}: {value}")


if __name__ == "__main__":
    app()
