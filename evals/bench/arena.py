"""Where a workload runs: the engine, the peers beside it, one thread count for all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path

import anyio

from ...engine.engine import Engine
from ...engine.protocol import ModelInfo
from ...reasoning.source import ModelSource, find_source
from .contender import Contender, Run, interleave
from .peer_choice import Space, open_choice
from .peer_models import PeerModels
from .peer_process import PeerProcess
from .result import OURS, Result, Work, make_result
from .setting import Setting

KV_BYTES = 4 << 30
"""KV memory of the engine, as the peers have it. Pages that are never written take none."""

DETERMINISTIC = f"{OURS} (deterministic)"


class Arena:
    """The engine, open, and whoever runs beside it. Made by `open_arena`."""

    def __init__(
        self, setting: Setting, source: ModelSource, engines: Mapping[str, Engine], stack: AsyncExitStack
    ) -> None:
        self.source = source
        self._setting = setting
        self._engines = engines
        self._stack = stack
        self._versions = {name: f"branchwise {version('branchwise')}" for name in engines}

    @property
    def info(self) -> ModelInfo:
        """Facts of the model that is measured."""
        return self._engines[OURS].models["policy"]

    async def open_peers(self, space: Space, source: Path | None = None) -> list[PeerProcess]:
        """The peers of the setting, on the policy or on the model `source`; they end with the arena."""
        forms = PeerModels(source or self.source.policy, self._setting.work)
        peers = []
        for choice in self._setting.peers:
            opening = open_choice(
                choice, forms, dtype=self._setting.dtype, threads=self._setting.threads, space=space
            )
            peers.append(await self._stack.enter_async_context(opening))
        self._versions |= {peer.name: peer.version for peer in peers}
        return peers

    async def compare(
        self,
        bench: str,
        sizes: Mapping[str, float],
        figure: str,
        ours: Callable[[Engine], Run],
        theirs: Sequence[Contender] = (),
        bound_tokens_per_s: float | None = None,
    ) -> Result:
        """Run `ours` on each engine and `theirs`, in turn; `figure` is the one that is compared."""
        own = [Contender(name, ours(engine)) for name, engine in self._engines.items()]
        runs = await interleave([*own, *theirs], self._setting.repeats)
        work = Work(
            bench=bench,
            model=self.source.name,
            dtype=self._setting.dtype,
            deterministic=self.source.deterministic and not self._setting.deterministic,
            threads=self._setting.threads,
            sizes=sizes,
            figure=figure,
        )
        return make_result(work, runs, self._versions, bound_tokens_per_s)


@asynccontextmanager
async def open_arena(
    setting: Setting, *, companions: Mapping[str, Path] | None = None
) -> AsyncIterator[Arena]:
    """Open the model of the setting as policy, and `companions` by their roles."""
    source = find_source(setting.model)
    models = {"policy": source.policy, **(companions or {})}
    modes = {OURS: source.deterministic}
    if setting.deterministic:
        modes = {OURS: False, DETERMINISTIC: True}
    async with AsyncExitStack() as stack:
        engines = {}
        for name, mode in modes.items():
            engine = await Engine.open_models(
                models, dtype=setting.dtype, threads=setting.threads, kv_memory=KV_BYTES, deterministic=mode
            )
            engines[name] = await stack.enter_async_context(engine)
        yield Arena(setting, source, engines, stack)


def run_bench(setting: Setting, measure: Callable[[Setting], Awaitable[Result]]) -> Result:
    """Run one workload with torch on the setting's threads."""
    with torch_threads(setting.threads):
        return anyio.run(measure, setting)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """torch on so many threads, and then on as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
