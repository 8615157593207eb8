"""Plans against runs: a workload planned for this machine, and run on the engine with random weights."""

import time
from collections.abc import Callable, Mapping, Sequence

import anyio
import msgspec
import torch

from ...engine.engine import Engine
from ...engine.exec.runner import Runner
from ...engine.hosted import EngineModel
from ...engine.models.config import ModelConfig, parse_config
from ...engine.models.decoder import Decoder
from ...engine.models.open import DTYPES, LoadedModel
from ...reasoning.budget import Budget
from ...reasoning.reasoner import Reasoner
from ...reasoning.settle import Settler
from ..bench.random_model import RandomTensors
from .machine import Machine
from .memory import plan_memory
from .oracle import OracleTokenizer, oracle_info
from .plan import Plan, Serving, Solved, Workload, make_plan, solve_all

KV_MEMORY = 1 << 28

_FIELDS = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}

POLICY = parse_config(_FIELDS, "the policy of the comparison")
SCORER = parse_config(
    {**_FIELDS, "architectures": ["LlamaForTokenClassification"], "num_labels": 2},
    "the scorer of the comparison",
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A workload and the models that it needs besides the policy."""

    name: str
    workload: Workload
    scored: bool = False

    @property
    def configs(self) -> Mapping[str, ModelConfig]:
        return {"policy": POLICY, "prm": SCORER} if self.scored else {"policy": POLICY}


CASES = (
    Case(
        name="best of 16, prompt 256, 64 tokens each",
        workload=Workload(
            strategy="best_of_n(n=16)", budget=Budget(tokens=16 * 64), prompt_tokens=256, max_tokens=64
        ),
    ),
    Case(
        name="beam of 16, steps of 16 tokens, scored by a model of the same size",
        workload=Workload(
            strategy="beam(n=16, width=4, depth=4)",
            budget=Budget(tokens=16 * 16 * 4),
            prompt_tokens=128,
            step="tokens:16",
            max_tokens=64,
        ),
        scored=True,
    ),
    Case(
        name="8 problems at once, prompts of 384, 8 tokens each",
        workload=Workload(
            strategy="greedy", budget=Budget(tokens=8), problems=8, prompt_tokens=384, max_tokens=8
        ),
    ),
)
"""Samples of one prompt, a tree with a step scorer, and many prompts at once that are mostly read."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine took for a workload."""

    seconds: float
    tokens: int
    kv_unshared_positions: int


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """Plan and run of one case."""

    name: str
    plan: Plan
    run: Run

    @property
    def ratio(self) -> float:
        """Planned seconds per second of the run."""
        return self.plan.seconds / self.run.seconds


def compare(
    case: Case,
    machine: Machine,
    *,
    dtype: str = "float32",
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> Compared:
    """Plan a case for `machine`, which was measured by the same clock, and run it; of the runs the median."""
    serving = Serving(
        configs=case.configs,
        machine=machine,
        element_bytes=DTYPES[dtype].itemsize,
        block_size=16,
        kv_memory=KV_MEMORY,
    )
    plan = make_plan(serving, case.workload)
    runs = anyio.run(_runs, serving, case.workload, dtype, repeats, clock)
    middle = sorted(runs, key=lambda run: run.seconds)[repeats // 2]
    return Compared(name=case.name, plan=plan, run=middle)


async def _runs(
    serving: Serving, workload: Workload, dtype: str, repeats: int, clock: Callable[[], float]
) -> list[Run]:
    """The workload on the engine as `Reasoner.open` makes it, on models of random weights that never end a
    text: other problems each time, and once more before, since what runs for the first time is slower."""
    settler = Settler()
    models = _models(serving, workload, DTYPES[dtype])
    engine = Engine(models, settle=settler.settle, due=settler.due)
    runs = []
    async with engine, Reasoner.over(engine, reproducible=False, settler=settler) as reasoner:
        for seed in range(repeats + 1):
            began = clock()
            solved = await solve_all(reasoner, msgspec.structs.replace(workload, seed=1000 * seed), clock)
            runs.append(_run(clock() - began, solved))
    return runs[1:]


def _run(seconds: float, solved: Sequence[Solved]) -> Run:
    usages = [one.solution.usage for one in solved]
    return Run(
        seconds=seconds,
        tokens=sum(usage.tokens for usage in usages),
        kv_unshared_positions=sum(usage.engine["kv_unshared_peak_tokens"] for usage in usages),
    )


def _models(serving: Serving, workload: Workload, dtype: torch.dtype) -> dict[str, EngineModel]:
    tokenizer, device = OracleTokenizer(workload.prompt_tokens), torch.device("cpu")
    longest = min(config.max_position for config in serving.configs.values())
    memory = plan_memory(
        serving.configs,
        serving.machine.memory_bytes,
        element_bytes=dtype.itemsize,
        block_size=serving.block_size,
        max_step_tokens=serving.max_step_tokens,
        longest=longest,
        kv_memory=serving.kv_memory,
    )
    models = {}
    for seed, (role, config) in enumerate(serving.configs.items()):
        decoder = Decoder(config, RandomTensors(config, dtype, device, seed=seed), dtype, device, longest)
        info = oracle_info(role, config, tokenizer, longest)
        info = msgspec.structs.replace(
            info,
            vocab_size=config.vocab_size,
            profile=msgspec.structs.replace(info.profile, stop_ids=frozenset()),
        )
        runner = Runner(LoadedModel(info, decoder), memory.num_blocks, block_size=serving.block_size)
        runner.cache.blocks.zero_()  # a page that is written for the first time takes longer
        models[role] = EngineModel(
            info=info, runner=runner, num_blocks=memory.num_blocks, block_size=serving.block_size
        )
    return models
