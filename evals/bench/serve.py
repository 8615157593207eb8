"""Serving: many prompts of mixed lengths arrive at once and run side by side in one engine."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import ExtendParams, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from .arena import open_arena
from .contender import Contender, Figures, Run
from .peer_choice import Space
from .peer_process import PeerProcess, PeerRequest
from .prompts import random_prompt
from .result import Result
from .setting import Setting


class _Request(NamedTuple):
    prompt: list[int]
    new: int


class Serve(msgspec.Struct, frozen=True, kw_only=True):
    """`requests` prompts of up to `prompt` tokens, each continued by up to `new` tokens; lengths are drawn
    evenly from an eighth of that on, the same for all runs."""

    requests: int = 64
    prompt: int = 512
    new: int = 128

    async def measure(self, setting: Setting) -> Result:
        """Tokens per second; seconds to the first token and between tokens, as quantiles."""
        async with open_arena(setting) as arena:
            if self.prompt + self.new > arena.info.max_model_len:
                raise UsageError(
                    f"--prompt {self.prompt} and --new {self.new} do not fit in "
                    f"{arena.info.max_model_len} positions of context"
                )
            runs = [self.draw(arena.info.vocab_size, number) for number in range(setting.repeats + 1)]
            space = Space(positions=self.prompt + self.new, sequences=self.requests, prefix_cache=False)
            peers = await arena.open_peers(space)
            return await arena.compare(
                "serve",
                msgspec.to_builtins(self),
                "tokens_per_s",
                lambda engine: on_engine(engine, runs),
                [Contender(peer.name, on_peer(peer, runs)) for peer in peers],
            )

    def draw(self, vocab_size: int, number: int) -> list[_Request]:
        """The requests of one run: its own tokens, the lengths of every run."""
        lengths = random.Random("serve")
        requests = []
        for index in range(self.requests):
            prompt = lengths.randint(-(-self.prompt // 8), self.prompt)
            new = lengths.randint(-(-self.new // 8), self.new)
            requests.append(_Request(random_prompt(vocab_size, prompt, f"serve {number} {index}"), new))
        return requests


def on_engine(engine: Engine, runs: Sequence[Sequence[_Request]]) -> Run:
    """One sequence per request, all extended side by side, read as a stream."""

    async def run(number: int) -> Figures:
        began = time.perf_counter()
        times: list[list[float]] = [[] for _ in runs[number]]
        sequences = [engine.open(request.prompt, seed=index) for index, request in enumerate(runs[number])]
        async with anyio.create_task_group() as tasks:
            for sequence, request, moments in zip(sequences, runs[number], times, strict=True):
                params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=request.new)
                tasks.start_soon(engine.extend, sequence, params, Unlimited(), _clock(moments, began))
        seconds = time.perf_counter() - began
        for sequence in sequences:
            engine.release(sequence)
        return latencies(seconds, times)

    return run


def _clock(moments: list[float], began: float) -> Callable[[Sequence[int]], None]:
    """Notes when tokens come."""

    def note(tokens: Sequence[int]) -> None:
        moments.extend([time.perf_counter() - began] * len(tokens))

    return note


def on_peer(peer: PeerProcess, runs: Sequence[Sequence[_Request]]) -> Run:
    """All requests at once."""

    async def run(number: int) -> Figures:
        requests = [PeerRequest(prompt=request.prompt, new=request.new) for request in runs[number]]
        answer = await peer.run(requests, timed=True)
        return latencies(answer.seconds, answer.times)

    return run


def latencies(seconds: float, times: Sequence[Sequence[float]]) -> Figures:
    """Throughput; quantiles of the time to first token (ttft) and between tokens (itl) over all requests.
    `times` are seconds since the requests came, per request and token."""
    first = [moments[0] for moments in times]
    between = [later - earlier for moments in times for earlier, later in pairwise(moments)]
    return {
        "seconds": seconds,
        "tokens_per_s": sum(len(moments) for moments in times) / seconds,
        "ttft_p50_s": quantile(first, 50),
        "ttft_p95_s": quantile(first, 95),
        "itl_p50_s": quantile(between, 50),
        "itl_p95_s": quantile(between, 95),
        "itl_p99_s": quantile(between, 99),
    }


def quantile(values: Sequence[float], percent: int) -> float:
    """The value below which `percent` of `values` lie, by linear interpolation; 0 of none."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
