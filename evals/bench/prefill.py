"""Prefill: how fast prompts are read when nothing is cached."""

import time
from collections.abc import Sequence

import anyio
import msgspec

from ...engine.engine import Engine
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


class Prefill(msgspec.Struct, frozen=True, kw_only=True):
    """`prompts` different prompts of `prompt` tokens, one token generated behind each."""

    prompts: int = 8
    prompt: int = 1024

    async def measure(self, setting: Setting) -> Result:
        """Prompt positions per second."""
        async with open_arena(setting) as arena:
            length = min(self.prompt, arena.info.max_model_len - 1)
            fitted = msgspec.structs.replace(self, prompt=length)
            runs = [
                [
                    random_prompt(arena.info.vocab_size, length, f"prefill {number} {index}")
                    for index in range(self.prompts)
                ]
                for number in range(setting.repeats + 1)
            ]
            space = Space(positions=length + 1, sequences=self.prompts, prefix_cache=False)
            peers = await arena.open_peers(space)
            return await arena.compare(
                "prefill",
                msgspec.to_builtins(fitted),
                "positions_per_s",
                lambda engine: fitted.on_engine(engine, runs),
                [Contender(peer.name, fitted.on_peer(peer, runs)) for peer in peers],
            )

    def on_engine(self, engine: Engine, runs: Sequence[Sequence[Sequence[int]]]) -> Run:
        """One sequence per prompt, side by side."""
        params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=1)

        async def run(number: int) -> Figures:
            began = time.perf_counter()
            sequences = [engine.open(prompt, seed=0) for prompt in runs[number]]
            async with anyio.create_task_group() as tasks:
                for sequence in sequences:
                    tasks.start_soon(engine.extend, sequence, params, Unlimited())
            seconds = time.perf_counter() - began
            for sequence in sequences:
                engine.release(sequence)
            return self._figures(seconds)

        return run

    def on_peer(self, peer: PeerProcess, runs: Sequence[Sequence[Sequence[int]]]) -> Run:
        """All prompts at once."""

        async def run(number: int) -> Figures:
            return self._figures((await peer.run([PeerRequest(prompt=one) for one in runs[number]])).seconds)

        return run

    def _figures(self, seconds: float) -> Figures:
        return {"seconds": seconds, "positions_per_s": self.prompts * self.prompt / seconds}
