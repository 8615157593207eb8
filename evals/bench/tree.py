"""Tree search with a step scorer: beams are extended by steps, each step is scored, the best go on."""

import random
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import anyio
import msgspec

from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import EngineUsage, ExtendParams, ScoreParams, SeqId, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from ...reasoning.source import find_source
from .arena import open_arena
from .contender import Contender, Figures, Run
from .options import MOST_AT_ONCE
from .peer_choice import Space
from .peer_models import PeerModels
from .peer_process import PeerProcess, PeerRequest
from .prompts import random_prompt
from .result import Result
from .setting import Setting


class _Beam(NamedTuple):
    """A path: its sequence on the policy, its mirror on the scorer."""

    policy: SeqId
    scorer: SeqId
    score: float = 0.0


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """`steps` steps of `new` tokens behind a prompt of `prompt` tokens: `beams * children` paths are
    extended, and scored by a model of other weights with KV of its own; the best `beams` fork `children`
    each. `prm` names the scorer; None: one of the policy's size, with random weights."""

    beams: int = 16
    children: int = 4
    steps: int = 8
    new: int = 32
    prompt: int = 256
    prm: str | None = None

    @property
    def paths(self) -> int:
        return self.beams * self.children

    async def measure(self, setting: Setting) -> Result:
        """Seconds in all. A peer re-sends: it generates each step from token ids, its own prefix cache on,
        and reads every path anew for a score, by a model of the policy's size; the score itself is free."""
        source = find_source(setting.model)
        if self.paths > MOST_AT_ONCE:
            raise UsageError(
                f"--beams {self.beams} times --children {self.children} are {self.paths} paths; "
                f"give {MOST_AT_ONCE} at most"
            )
        if self.prm is not None and setting.peers:
            raise UsageError(
                "--prm with --peer: a peer scores with a model of the policy's size; leave one out"
            )
        if self.prm is None:
            scorer = await PeerModels(source.policy, setting.work).scorer()
        else:
            given = find_source(self.prm)
            scorer = given.prm or given.policy
        async with open_arena(setting, companions={"prm": scorer}) as arena:
            room = arena.info.max_model_len - self.steps * self.new
            if room < 1:
                raise UsageError(
                    f"--steps {self.steps} of --new {self.new} leave no room for a prompt in "
                    f"{arena.info.max_model_len} positions of context"
                )
            fitted = msgspec.structs.replace(self, prompt=min(self.prompt, room))
            prompts = [
                random_prompt(arena.info.vocab_size, fitted.prompt, f"tree {number}")
                for number in range(setting.repeats + 1)
            ]
            longest = fitted.prompt + self.steps * self.new + 1
            writers = await arena.open_peers(Space(positions=longest, sequences=self.paths))
            readers = await arena.open_peers(
                Space(positions=longest, sequences=self.paths, prefix_cache=False)
            )
            sizes = msgspec.to_builtins(fitted)
            sizes.pop("prm")
            return await arena.compare(
                "tree",
                sizes,
                "seconds",
                lambda engine: fitted.on_engine(engine, prompts),
                [
                    Contender(writer.name, fitted.on_peer(writer, reader, prompts))
                    for writer, reader in zip(writers, readers, strict=True)
                ],
            )

    def on_engine(self, engine: Engine, prompts: Sequence[Sequence[int]]) -> Run:
        """Fork, extend, mirror, score the new step only, prune."""
        params = ExtendParams(sampling=SamplingParams(), stop=StopRule(), max_tokens=self.new)

        async def step(child: _Beam, length: int, scored: list[_Beam]) -> None:
            extension = await engine.extend(child.policy, params, Unlimited())
            engine.append(child.scorer, extension.tokens)
            found = await engine.score(child.scorer, ScoreParams(reward_at=(length - 1,)), Unlimited())
            scored.append(child._replace(score=found.rewards[0]))

        def forked(beam: _Beam, count: int, first_seed: int) -> list[_Beam]:
            seeds = range(first_seed, first_seed + count)
            pairs = zip(engine.fork(beam.policy, seeds), engine.fork(beam.scorer, seeds), strict=True)
            return [_Beam(policy, scorer) for policy, scorer in pairs]

        def release(beams: Sequence[_Beam]) -> None:
            for beam in beams:
                engine.release(beam.policy, pruned=True)
                engine.release(beam.scorer, pruned=True)

        async def run(number: int) -> Figures:
            generation, scoring = EngineUsage(), EngineUsage()
            began = time.perf_counter()
            prompt = prompts[number]
            root = _Beam(
                engine.open(prompt, seed=0, usage=generation),
                engine.open(prompt, seed=0, model="prm", usage=scoring),
            )
            beams, seed = [root], 1
            for depth in range(1, self.steps + 1):
                each = self.paths // len(beams)
                children: list[_Beam] = []
                for beam in beams:
                    children += forked(beam, each, seed)
                    seed += each
                release(beams)
                scored: list[_Beam] = []
                async with anyio.create_task_group() as tasks:
                    for child in children:
                        tasks.start_soon(partial(step, child, len(prompt) + depth * self.new, scored))
                scored.sort(key=lambda beam: beam.score, reverse=True)
                beams = scored[: self.beams]
                release(scored[self.beams :])
            seconds = time.perf_counter() - began
            release(beams)
            return {
                "seconds": seconds,
                "generated_tokens": float(self.steps * self.paths * self.new),
                "positions_to_score": float(_computed(scoring)),
                "positions_to_generate": float(_computed(generation)),
            }

        return run

    def on_peer(self, writer: PeerProcess, reader: PeerProcess, prompts: Sequence[Sequence[int]]) -> Run:
        """Generate a step of all beams, read all paths, keep some; text by text."""

        async def run(number: int) -> Figures:
            draw = random.Random(number)
            generating = reading = 0.0
            positions = 0
            beams = [list(prompts[number])]
            for _ in range(self.steps):
                each = self.paths // len(beams)
                requests = [PeerRequest(prompt=beam, samples=each, new=self.new) for beam in beams]
                written = await writer.run(requests, tokens=True)
                generating += written.seconds
                starts = [beam for beam in beams for _ in range(each)]
                paths = [[*start, *step] for start, step in zip(starts, written.tokens, strict=True)]
                read = await reader.run([PeerRequest(prompt=path) for path in paths])
                reading += read.seconds
                positions += sum(len(path) for path in paths)
                beams = draw.sample(paths, self.beams)
            return {
                "seconds": generating + reading,
                "generated_tokens": float(self.steps * self.paths * self.new),
                "positions_to_score": float(positions),
                "generating_s": generating,
                "scoring_s": reading,
            }

        return run


def _computed(usage: EngineUsage) -> int:
    """Positions that went through the model."""
    return usage.prefill_tokens + usage.decode_tokens + usage.score_tokens + usage.recomputed_tokens
