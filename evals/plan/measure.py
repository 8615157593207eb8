"""The machine at hand in figures: what its cores reach on layers of one model's shape, and what the engine
takes around them."""

import statistics
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec
import torch

from ...engine.engine import Engine
from ...engine.exec.runner import Runner
from ...engine.models.config import ModelConfig
from ...engine.models.decoder import Decoder
from ...engine.models.open import DTYPES, LoadedModel
from ...engine.protocol import SeqId
from ...engine.sampling.params import SamplingParams
from ...engine.sched.plan import ModelPlan, Sample, Span
from ...reasoning.budget import Budget
from ...reasoning.reasoner import Reasoner
from ...reasoning.settle import Settler
from ..bench.machine import cpu_model
from ..bench.oracle import OracleModel, oracle_engine_model
from ..bench.random_model import RandomTensors
from .machine import Machine, Rate
from .memory import weight_elements
from .oracle import OracleTokenizer, oracle_info

Clock = Callable[[], float]

ROWS = (1, 4, 16, 32, 64, 128, 512, 2048)
SINGLE_ROWS = 64
"""Steps of up to so many rows are measured as single rows, larger ones as runs of as many."""

ATTENDING_ROWS = 16
CONTEXT = 1024
BLOCK_SIZE = 16
MOST_LAYER_BYTES = 1 << 28
"""Layers beyond this many bytes are not made: the first ones show what each takes."""

HOST_ROWS, HOST_STEPS = (2, 64), 60
LEAST_RUNS, ENOUGH_S = 3, 0.3


class Layers:
    """Some layers of a model's shape with random weights, behind the engine's runner."""

    def __init__(self, config: ModelConfig, layers: int, dtype: torch.dtype, clock: Clock) -> None:
        self.count = layers
        self.config = msgspec.structs.replace(config, layers=layers, windows=config.windows[:layers])
        self._clock = clock
        self._context = min(CONTEXT, config.max_position - SINGLE_ROWS)
        device = torch.device("cpu")
        tensors = RandomTensors(self.config, dtype, device)
        decoder = Decoder(self.config, tensors, dtype, device, config.max_position)
        info = oracle_info("policy", self.config, OracleTokenizer(1), None)
        blocks = 2 + -(-self._context // BLOCK_SIZE) + max(ROWS)
        self._runner = Runner(LoadedModel(info, decoder), blocks, block_size=BLOCK_SIZE)

    def step_s(self, rows: int, *, draws: bool = False) -> float:
        """A step of `rows` rows that see next to nothing before them; `draws`: with a token of each row."""
        size = 1 if rows <= SINGLE_ROWS else SINGLE_ROWS
        return self._timed([self._span(index, 0, size, draws=draws) for index in range(rows // size)])

    def attending_s(self, size: int) -> tuple[float, int]:
        """Seconds that a step of `ATTENDING_ROWS` spans of `size` rows takes longer where all of them see a
        context, and the positions that its rows see together."""
        count = ATTENDING_ROWS if size == 1 else 1
        start = self._context // BLOCK_SIZE * BLOCK_SIZE - (size if size > 1 else 0)
        start = max(BLOCK_SIZE, start // BLOCK_SIZE * BLOCK_SIZE)
        behind = self._timed([self._span(index, start, size) for index in range(count)])
        alone = self._timed([self._span(index, 0, size) for index in range(count)])
        return max(0.0, behind - alone), count * size * start

    def _span(self, index: int, start: int, size: int, *, draws: bool = False) -> Span:
        """Rows of sequence `index` behind a context that all share."""
        seq, shared = SeqId(index + 1), start // BLOCK_SIZE
        own_blocks = -(-size // BLOCK_SIZE)
        first = 1 + shared + index * own_blocks
        blocks = (*range(1, 1 + shared), *range(first, first + own_blocks))
        sample = Sample(seq, index, start + size, SamplingParams())
        samples = (sample,) if draws else ()
        return Span(seq, start, tuple(range(1, size + 1)), blocks, start, samples)

    def _timed(self, spans: Sequence[Span]) -> float:
        plan = ModelPlan("policy", tuple(spans))
        self._runner.execute(plan)
        return median_s(lambda: self._runner.execute(plan), self._clock)


def median_s(work: Callable[[], object], clock: Clock) -> float:
    """Seconds of the median of some runs."""
    runs: list[float] = []
    while len(runs) < LEAST_RUNS or sum(runs) < ENOUGH_S:
        began = clock()
        work()
        runs.append(max(clock() - began, 1e-6))
    return statistics.median(runs)


def measure_machine(
    config: ModelConfig,
    *,
    dtype: str,
    memory_bytes: int,
    clock: Clock = time.perf_counter,
) -> Machine:
    """This machine, for models of about this shape, with the present number of torch's threads.

    `bytes_per_s` is the speed at which a step of one row reads its layers; `products` are the rates of whole
    layers without context, norms and the like included. What the engine takes for itself is measured around
    a model that takes no time.
    """
    element = DTYPES[dtype].itemsize
    one = msgspec.structs.replace(config, layers=1, windows=config.windows[:1])
    two = msgspec.structs.replace(config, layers=2, windows=(config.windows * 2)[:2])
    layer_bytes = (weight_elements(two) - weight_elements(one)) * element
    count = max(2, min(config.layers, MOST_LAYER_BYTES // layer_bytes))
    config = msgspec.structs.replace(config, layers=count, windows=(config.windows * 2)[:count])
    most, least = (Layers(config, layers, DTYPES[dtype], clock) for layers in (count, 1))
    per_row = 2 * config.cost.block_params // count
    layer_s = {rows: (most.step_s(rows) - least.step_s(rows)) / (count - 1) for rows in ROWS}
    products = tuple(Rate(rows, rows * per_row / max(seconds, 1e-9)) for rows, seconds in layer_s.items())
    step_s, draw_s = host_seconds(clock)
    machine = Machine(
        name=f"this machine ({cpu_model()}, {torch.get_num_threads()} threads)",
        bytes_per_s=layer_bytes / layer_s[1],
        flops_per_s=max(rate.flops_per_s for rate in products),
        memory_bytes=memory_bytes,
        dtype=dtype,
        products=products,
        decode_attention_flops_per_s=_attention_rate(most, 1),
        prefill_attention_flops_per_s=_attention_rate(most, SINGLE_ROWS),
        step_s=step_s,
        draw_s=draw_s,
    )
    return msgspec.structs.replace(machine, logit_s=_logit_s(least, machine))


def _attention_rate(layers: Layers, size: int) -> float:
    """Operations per second; 0 where the difference is lost in noise."""
    seconds, paths = layers.attending_s(size)
    flops = 4.0 * paths * layers.config.heads * layers.config.head_dim * layers.count
    return flops / seconds if seconds > 0 else 0.0


def _logit_s(layers: Layers, machine: Machine) -> float:
    """Seconds of one logit that is drawn from, beside the head's product."""
    rows, columns = SINGLE_ROWS, layers.config.head_columns
    taken = layers.step_s(rows, draws=True) - layers.step_s(rows)
    product = 2.0 * rows * columns * layers.config.hidden / machine.product_flops_per_s(rows)
    return max(0.0, taken - product) / (rows * columns)


def host_seconds(clock: Clock = time.perf_counter) -> tuple[float, float]:
    """Seconds of the engine itself: of a step, and of each token drawn in it."""
    few, many = HOST_ROWS
    first, second = (
        statistics.median(anyio.run(_host_step_s, rows, clock) for _ in range(3)) for rows in HOST_ROWS
    )
    each = max(0.0, (second - first) / (many - few))
    return max(0.0, first - few * each), each


async def _host_step_s(rows: int, clock: Clock) -> float:
    """A step of `rows` samples around a model without layers."""
    model, settler = OracleModel(), Settler()
    hosted = oracle_engine_model(model, rows, HOST_STEPS + 32)
    engine = Engine({"policy": hosted}, settle=settler.settle, due=settler.due)
    async with engine, Reasoner.over(engine, settler=settler) as reasoner:
        began = clock()
        await reasoner.solve(
            "host", f"best_of_n(n={rows})", Budget(tokens=rows * HOST_STEPS), max_tokens=HOST_STEPS, seed=0
        )
        return (clock() - began) / len(model.rows)
