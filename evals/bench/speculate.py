"""Speculation: the time that drafting saves where it can, and costs where it cannot."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import anyio
import msgspec

from ...engine.drafting.params import Speculate, parse_speculate
from ...engine.engine import Engine
from ...engine.errors import UsageError
from ...engine.protocol import EngineUsage, ExtendParams, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from ...engine.text.tokenizer import Message
from .arena import open_arena
from .contender import Figures, Run
from .copying import copy_prompts
from .prompts import random_prompt
from .result import Result
from .setting import Setting


class _Case(NamedTuple):
    """Prompts of one kind, and how they are continued."""

    name: str
    prompts: list[list[int]]
    temperature: float


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """The lists of `copying`, at temperatures 0 and 0.7, and as many random prompts at temperature 1, where
    nothing repeats: each continued by `new` tokens, `at_once` of them side by side, with drafts of `drafts`
    and without."""

    drafts: str = "ngram(k=4)"
    new: int = 96
    at_once: int = 1

    async def measure(self, setting: Setting) -> Result:
        """For each case the speedup: the time without drafts over the time with them. Each run is a pair; the
        order within it alternates."""
        drafts = parse_speculate(self.drafts)
        async with open_arena(setting) as arena:
            tokenizer = arena.info.tokenizer
            copied = [tokenizer.chat([Message("user", text)]) for text in copy_prompts()]
            longest = max(len(prompt) for prompt in copied)
            if longest + self.new > arena.info.max_model_len:
                raise UsageError(
                    f"--new {self.new} and a prompt of {longest} tokens do not fit in "
                    f"{arena.info.max_model_len} positions of context"
                )
            free = [
                random_prompt(arena.info.vocab_size, len(prompt), f"speculate {index}")
                for index, prompt in enumerate(copied)
            ]
            cases = [
                _Case("copy_t0", copied, 0.0),
                _Case("copy_t07", copied, 0.7),
                _Case("free_t1", free, 1.0),
            ]
            return await arena.compare(
                "speculate",
                {"new": self.new, "at_once": self.at_once, "prompts": len(copied)},
                "copy_t0_speedup",
                lambda engine: self.on_engine(engine, cases, drafts),
            )

    def on_engine(self, engine: Engine, cases: Sequence[_Case], drafts: Speculate) -> Run:
        """One pair of each case."""

        async def run(number: int) -> Figures:
            figures: dict[str, float] = {}
            for case in cases:
                seconds: dict[bool, float] = {}
                usage = EngineUsage()
                for with_drafts in (number % 2 == 0, number % 2 == 1):
                    seconds[with_drafts] = await self._time(
                        engine, case, drafts if with_drafts else None, number, usage
                    )
                figures |= {
                    f"{case.name}_speedup": seconds[False] / seconds[True],
                    f"{case.name}_seconds": seconds[True],
                    f"{case.name}_drafted": float(usage.draft_tokens),
                    f"{case.name}_accepted": float(usage.accepted_tokens),
                }
            return figures

        return run

    async def _time(
        self, engine: Engine, case: _Case, drafts: Speculate | None, number: int, usage: EngineUsage
    ) -> float:
        """Seconds for all prompts of the case, `at_once` at a time; prompts are read anew each time."""
        params = ExtendParams(
            sampling=SamplingParams(temperature=case.temperature),
            stop=StopRule(),
            max_tokens=self.new,
            speculate=drafts,
        )
        namespace = f"speculate {number} {case.name} {drafts is None}"
        began = time.perf_counter()
        for first in range(0, len(case.prompts), self.at_once):
            sequences = [
                engine.open(prompt, seed=number, namespace=namespace, usage=usage)
                for prompt in case.prompts[first : first + self.at_once]
            ]
            async with anyio.create_task_group() as tasks:
                for sequence in sequences:
                    tasks.start_soon(engine.extend, sequence, params, Unlimited())
            for sequence in sequences:
                engine.release(sequence)
        return time.perf_counter() - began
