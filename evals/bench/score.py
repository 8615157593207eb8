"""Scoring: log-probabilities of given continuations of one prompt, with the prompt read once or each time."""

import time
from collections.abc import Sequence
from functools import partial

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import ScoreParams, SeqId, Unlimited
from .arena import open_arena
from .contender import Contender, Figures, Run
from .peer_choice import Space
from .peer_process import PeerProcess, PeerRequest
from .prompts import random_prompt
from .result import Result
from .setting import Setting


class _Texts(msgspec.Struct, frozen=True):
    """What one run scores."""

    prompt: list[int]
    continuations: list[list[int]]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """`texts` continuations of `scored` tokens each, behind one prompt of `prompt` tokens."""

    texts: int = 16
    prompt: int = 512
    scored: int = 64

    async def measure(self, setting: Setting) -> Result:
        """Scored positions per second: branches of one prompt, and again as texts that know nothing of each
        other. A peer reads the texts with its prefix cache on, and gives no log-probabilities."""
        async with open_arena(setting) as arena:
            room = arena.info.max_model_len - self.scored
            if room < 2:
                raise UsageError(
                    f"--scored {self.scored} leaves no room for a prompt in "
                    f"{arena.info.max_model_len} positions of context"
                )
            fitted = msgspec.structs.replace(self, prompt=min(self.prompt, room - 1))
            runs = [fitted.draw(arena.info.vocab_size, number) for number in range(setting.repeats + 1)]
            space = Space(positions=fitted.prompt + self.scored + 1, sequences=self.texts)
            peers = await arena.open_peers(space)
            return await arena.compare(
                "score",
                msgspec.to_builtins(fitted),
                "positions_per_s",
                lambda engine: fitted.on_engine(engine, runs),
                [Contender(peer.name, fitted.on_peer(peer, runs)) for peer in peers],
            )

    def draw(self, vocab_size: int, number: int) -> _Texts:
        """The texts of one run."""
        return _Texts(
            prompt=random_prompt(vocab_size, self.prompt, f"score {number}"),
            continuations=[
                random_prompt(vocab_size, self.scored, f"score {number} {index}")
                for index in range(self.texts)
            ],
        )

    def on_engine(self, engine: Engine, runs: Sequence[_Texts]) -> Run:
        """With reuse: the branches of one prompt. Without: each text in a namespace of its own, where nothing
        is found."""

        async def run(number: int) -> Figures:
            texts = runs[number]
            began = time.perf_counter()
            root = engine.open(texts.prompt, seed=0)
            branches = engine.fork(root, range(self.texts))
            for branch, continuation in zip(branches, texts.continuations, strict=True):
                engine.append(branch, continuation)
            await self._score(engine, branches)
            seconds = time.perf_counter() - began
            engine.release(root)
            began = time.perf_counter()
            apart = [
                engine.open([*texts.prompt, *continuation], seed=0, namespace=f"score {number} {index}")
                for index, continuation in enumerate(texts.continuations)
            ]
            await self._score(engine, apart)
            without = time.perf_counter() - began
            return self._figures(seconds) | {
                "without_reuse_seconds": without,
                "without_reuse_positions_per_s": self.texts * self.scored / without,
            }

        return run

    async def _score(self, engine: Engine, sequences: Sequence[SeqId]) -> None:
        params = ScoreParams(logprobs_from=self.prompt)
        async with anyio.create_task_group() as tasks:
            for sequence in sequences:
                tasks.start_soon(partial(engine.score, sequence, params, Unlimited()))
        for sequence in sequences:
            engine.release(sequence)

    def on_peer(self, peer: PeerProcess, runs: Sequence[_Texts]) -> Run:
        """All texts at once, one token generated behind each."""

        async def run(number: int) -> Figures:
            texts = runs[number]
            requests = [PeerRequest(prompt=[*texts.prompt, *one]) for one in texts.continuations]
            return self._figures((await peer.run(requests)).seconds)

        return run

    def _figures(self, seconds: float) -> dict[str, float]:
        return {"seconds": seconds, "positions_per_s": self.texts * self.scored / seconds}
