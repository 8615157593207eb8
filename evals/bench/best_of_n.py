"""Best-of-n throughput: n samples of one prompt, at temperature 1 from the whole distribution."""

import time
from collections.abc import Sequence

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import ExtendParams, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from .arena import open_arena
from .bound import product_bound
from .contender import Contender, Figures, Run
from .peer_choice import Space
from .peer_process import PeerProcess, PeerRequest
from .prompts import random_prompt
from .result import Result
from .setting import Setting


class BestOfN(msgspec.Struct, frozen=True, kw_only=True):
    """`samples` continuations of `new` tokens each behind a prompt of `prompt` tokens; none stops early."""

    samples: int = 16
    prompt: int = 512
    new: int = 128

    def fitting(self, max_model_len: int) -> "BestOfN":
        """This workload with its prompt shortened to the context; `UsageError` if the new tokens alone do not
        fit."""
        room = max_model_len - self.new
        if room < 1:
            raise UsageError(
                f"--new {self.new} leaves no room for a prompt in {max_model_len} positions of context"
            )
        return msgspec.structs.replace(self, prompt=min(self.prompt, room))

    async def measure(self, setting: Setting) -> Result:
        """Tokens per second, the prompt's time included."""
        async with open_arena(setting) as arena:
            fitted = self.fitting(arena.info.max_model_len)
            prompts = [
                random_prompt(arena.info.vocab_size, fitted.prompt, f"best-of-n {number}")
                for number in range(setting.repeats + 1)
            ]
            space = Space(positions=fitted.prompt + fitted.new, sequences=fitted.samples)
            peers = await arena.open_peers(space)
            return await arena.compare(
                "best-of-n",
                msgspec.to_builtins(fitted),
                "tokens_per_s",
                lambda engine: fitted.on_engine(engine, prompts),
                [Contender(peer.name, fitted.on_peer(peer, prompts)) for peer in peers],
                product_bound(arena.source.policy, fitted.samples, setting.dtype),
            )

    def on_engine(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> Run:
        """Fork the prompt, extend all branches side by side."""
        params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=self.new)

        async def run(number: int) -> Figures:
            began = time.perf_counter()
            root = engine.open(prompts[number], seed=number)
            branches = engine.fork(root, range(1, self.samples + 1))
            async with anyio.create_task_group() as tasks:
                for branch in branches:
                    tasks.start_soon(engine.extend, branch, params, Unlimited())
            seconds = time.perf_counter() - began
            for branch in (*branches, root):
                engine.release(branch)
            return self._figures(seconds)

        return run

    def on_peer(self, peer: PeerProcess, prompts: Sequence[Sequence[int]]) -> Run:
        """One request for all samples."""

        async def run(number: int) -> Figures:
            request = PeerRequest(prompt=prompts[number], samples=self.samples, new=self.new)
            return self._figures((await peer.run([request])).seconds)

        return run

    def _figures(self, seconds: float) -> Figures:
        return {"seconds": seconds, "tokens_per_s": self.samples * self.new / seconds}
