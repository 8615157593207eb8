"""Several back ends as one: a policy on a server beside a reward model in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Protocol, Self

from .errors import HandleError
from .handles import check_open
from .memory_plan import MemoryPlan
from .protocol import (
    Backend,
    Capabilities,
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelInfo,
    ScoreParams,
    Scores,
    SeqId,
)


class OpenableBackend(Backend, Protocol):
    """A back end that runs while it is entered."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None: ...


class JoinedEngine:
    """Implements `engine.protocol.Backend` over back ends that host different models. An async context
    manager that enters all of them.

    A meter may then be asked on several threads; those of the orchestrator lock. What the engine as a whole
    can do with the policy's text is what the policy's back end can; rewards come from any.
    """

    def __init__(self, backends: Sequence[OpenableBackend]) -> None:
        self._backends = list(backends)
        self._host = {name: backend for backend in backends for name in backend.models}
        self._sequences: dict[SeqId, tuple[OpenableBackend, SeqId]] = {}
        self._ids = count(1)
        self._stack = AsyncExitStack()
        self.models: Mapping[str, ModelInfo] = {
            name: info for backend in backends for name, info in backend.models.items()
        }

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for backend in self._backends:
                await stack.enter_async_context(backend)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(exc_type, exc, traceback)

    @property
    def capabilities(self) -> Capabilities:
        policy = self._host["policy"].capabilities
        all_of = [backend.capabilities for backend in self._backends]
        return Capabilities(
            score_logprob=policy.score_logprob,
            score_reward=any(one.score_reward for one in all_of),
            token_stats=policy.token_stats,
            exact_meter=all(one.exact_meter for one in all_of),
            kv_account=all(one.kv_account for one in all_of),
            seeds=all(one.seeds for one in all_of),
            speculates=policy.speculates,
            constrains=policy.constrains,
            flops=all(one.flops for one in all_of),
        )

    @property
    def memory_plan(self) -> MemoryPlan | None:
        """That of the models in this process."""
        plans = [plan for one in self._backends if (plan := getattr(one, "memory_plan", None)) is not None]
        return plans[0] if plans else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the back ends have to say about themselves."""
        return tuple(note for backend in self._backends for note in getattr(backend, "notes", ()))

    def open(
        self,
        tokens: Sequence[int],
        *,
        seed: int,
        model: str = "policy",
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> SeqId:
        check_open(self._host, model)
        backend = self._host[model]
        inner = backend.open(tokens, seed=seed, model=model, namespace=namespace, tenant=tenant, usage=usage)
        return self._add(backend, inner)

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        backend, inner = self._of(seq)
        return [self._add(backend, child) for child in backend.fork(inner, seeds)]

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        backend, inner = self._of(seq)
        backend.append(inner, tokens)

    def truncate(self, seq: SeqId, position: int) -> None:
        backend, inner = self._of(seq)
        backend.truncate(inner, position)

    def park(self, seq: SeqId) -> None:
        if (found := self._sequences.get(seq)) is not None:
            found[0].park(found[1])

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        if (found := self._sequences.pop(seq, None)) is not None:
            found[0].release(found[1], pruned=pruned)

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        backend, inner = self._of(seq)
        return await backend.extend(inner, params, meter, on_tokens)

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        backend, inner = self._of(seq)
        return await backend.score(inner, params, meter)

    def notify(self) -> None:
        for backend in self._backends:
            backend.notify()

    def _add(self, backend: OpenableBackend, inner: SeqId) -> SeqId:
        seq = SeqId(next(self._ids))
        self._sequences[seq] = (backend, inner)
        return seq

    def _of(self, seq: SeqId) -> tuple[OpenableBackend, SeqId]:
        if seq not in self._sequences:
            raise HandleError(f"sequence {seq}: released or unknown")
        return self._sequences[seq]
