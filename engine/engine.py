"""The local back end: an anyio facade in front of the engine thread."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from .checked import checked_kind, checked_text, whole_numbers
from .delivery import Deliveries
from .errors import EngineClosed, UsageError
from .generation import Chunk, TextStream, TokenBuffer, encoded, stream_chunks
from .handles import Handle, Handles
from .hosted import EngineModel, capabilities_of, make_memory, memory_plan
from .loop import EngineLoop
from .metrics import EngineMetrics
from .protocol import (
    Capabilities,
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelInfo,
    Pinned,
    ScoreParams,
    Scores,
    SeqId,
    Unlimited,
)
from .sampling.params import SamplingParams
from .sched.limits import StepLimits
from .sched.scheduler import Scheduler, StopWatchFactory
from .settling import Due, Settle, never_due, settle_turns
from .text.stop import StopChecker, StopRule
from .ticket import OnTokens, Ticket
from .timing import Timings
from .watchdog import Watchdog


class Engine:
    """Implements `engine.protocol.Backend` over local models. An async context manager, bound to one event
    loop.

    `models` is keyed by role. `max_step_tokens` bounds the rows of a step, all models together. `settle`
    decides when the tasks woken by a delivery have parked; without it, a few turns of the event loop, at most
    `settle_s` seconds. `check` runs the invariant checker after every step.

    `max_waiting` bounds the queue of each tenant, `max_waiting_in_all` that of all together. Leaving the
    context cancels what runs; with `drain_s` it first lets it run on for so many seconds. A step of more than
    `stuck_after_s` seconds is reported.
    """

    def __init__(
        self,
        models: Mapping[str, EngineModel],
        *,
        max_step_tokens: int = 2048,
        max_chunk_tokens: int | None = None,
        max_kept_rows: int = 64,
        max_waiting: int = 16384,
        max_waiting_in_all: int = 65536,
        drain_s: float = 0.0,
        stuck_after_s: float = 120.0,
        check: bool = False,
        settle: Settle | None = None,
        due: Due | None = None,
        settle_s: float = 0.002,
        make_stop_watch: StopWatchFactory | None = None,
    ) -> None:
        if max_step_tokens < 1:
            raise UsageError(f"max_step_tokens is {max_step_tokens}; it must be at least 1")
        limits = StepLimits(
            max_rows=max_step_tokens,
            max_chunk_rows=max_chunk_tokens or max_step_tokens,
            max_kept_rows=max_kept_rows,
            max_waiting=max_waiting,
            max_waiting_in_all=max_waiting_in_all,
        )
        self._hosted = dict(models)
        self._models = {name: model.info for name, model in models.items()}
        memories = {name: make_memory(name, model) for name, model in models.items()}
        max_len = {name: memory.max_len for name, memory in memories.items()}
        timings, watchdog = Timings(), Watchdog(stuck_after_s)
        self.scheduler = Scheduler(
            memories, make_stop_watch or StopChecker, limits, check=check, observer=timings
        )
        self.metrics = EngineMetrics(self.scheduler, timings, watchdog)
        self.memory_plan = memory_plan(models)
        self._runners = {name: model.runner for name, model in models.items()}
        self._drain_s = drain_s
        self._handles = Handles(self._models, max_len)
        deliveries = Deliveries(self._handles, self._cancel, settle or partial(settle_turns, settle_s))
        self._deliveries = deliveries
        self._loop = EngineLoop(
            self.scheduler,
            self._runners,
            deliveries.hand_over,
            deliveries.hand_over_end,
            due or never_due,
            timings,
            watchdog,
        )
        self._seq_ids = count(1)
        self._request_ids = count(1)
        self._closed = False

    @classmethod
    async def open_models(
        cls,
        sources: Mapping[str, str | Path],
        *,
        dtype: str = "float32",
        device: str = "cpu",
        kv_memory: int | None = None,
        block_size: int | None = None,
        max_model_len: int | None = None,
        max_step_tokens: int = 2048,
        deterministic: bool = False,
        threads: int | None = None,
        adapters: Mapping[str, str | Path] | None = None,
        max_waiting: int = 16384,
        max_waiting_in_all: int = 65536,
        drain_s: float = 0.0,
        check: bool = False,
        settle: Settle | None = None,
        due: Due | None = None,
    ) -> "Engine":
        """Load the models, with the LoRA adapters (PEFT folders) of their roles, and split `kv_memory` bytes
        between them; the engine is then entered with `async with`. `threads`: of the CPU, None for as many
        as make the first model's steps fastest. Raises `ModelLoadError` in one line.
        """
        from .opening import load_models, use_threads  # brings torch

        load = partial(
            load_models,
            sources,
            dtype=dtype,
            device=device,
            kv_memory=kv_memory,
            block_size=block_size,
            max_model_len=max_model_len,
            max_rows=max_step_tokens,
            deterministic=deterministic,
            adapters=adapters,
        )
        models = await anyio.to_thread.run_sync(load)
        await use_threads(threads, models)
        return cls(
            models,
            max_step_tokens=max_step_tokens,
            max_waiting=max_waiting,
            max_waiting_in_all=max_waiting_in_all,
            drain_s=drain_s,
            check=check,
            settle=settle,
            due=due,
        )

    async def __aenter__(self) -> Self:
        self._deliveries.event_loop = anyio.lowlevel.current_token()
        self._loop.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        if self._drain_s > 0:
            with anyio.move_on_after(self._drain_s, shield=True):
                await self._deliveries.drained()
        self._loop.close()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._loop.join)

    # Facts

    @property
    def capabilities(self) -> Capabilities:
        return capabilities_of(self._models.values())

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        return self._models

    # Verbs that need no forward pass

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
        """Start a sequence from token ids, at least one. See `Backend.open`."""
        self._require_open()
        ids = self._handles.checked_tokens(model, tokens, behind=0)
        (seed,) = whole_numbers("seeds", [seed])
        namespace, tenant = checked_text("namespace", namespace), tenant and checked_text("tenant", tenant)
        usage = usage and checked_kind("usage", usage, EngineUsage)
        seq = SeqId(next(self._seq_ids))
        self._handles.add(seq, model, len(ids))
        command = partial(self.scheduler.open, seq, ids, seed=seed, model=model)
        self._loop.post(partial(command, namespace=namespace, tenant=tenant, usage=usage))
        return seq

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        """One child per seed. See `Backend.fork`."""
        handle = self._idle(seq, "forked")
        children = [(SeqId(next(self._seq_ids)), seed) for seed in whole_numbers("seeds", seeds)]
        for child, _ in children:
            self._handles.add(child, handle.model, handle.known)
        if children:
            self._loop.post(partial(self.scheduler.fork, seq, children))
        return [child for child, _ in children]

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        handle = self._idle(seq, "appended to")
        ids = self._handles.checked_tokens(handle.model, tokens, behind=handle.known)
        handle.known += len(ids)
        self._loop.post(partial(self.scheduler.append, seq, ids))

    def truncate(self, seq: SeqId, position: int) -> None:
        handle = self._idle(seq, "truncated")
        (position,) = whole_numbers("positions", [position])
        if not 1 <= position <= handle.known:
            raise UsageError(f"cannot truncate at {position}; the sequence has positions 1 to {handle.known}")
        handle.known = position
        self._loop.post(partial(self.scheduler.truncate, seq, position))

    def park(self, seq: SeqId) -> None:
        """A hint; may be called from a meter, and then takes effect at the next step boundary."""
        self._loop.post(partial(self.scheduler.park, checked_kind("sequence", seq, int)))

    def release(self, seq: SeqId, *, pruned: bool = False) -> None:
        """End the sequence. Idempotent, also after the engine was closed. See `Backend.release`."""
        if self._handles.remove(checked_kind("sequence", seq, int)):
            self._loop.post(partial(self.scheduler.release, seq, pruned=pruned))

    def unpin(self, seq: SeqId) -> None:
        """End the pin of a sequence, released or not. Idempotent."""
        self._loop.post(partial(self.scheduler.unpin, checked_kind("sequence", seq, int)))

    def notify(self) -> None:
        self._loop.notify()

    def post(self, command: Callable[[], None]) -> None:
        """Run `command` on the engine thread at the next step boundary, in the order of posting."""
        self._loop.post(command)

    # Verbs that wait

    async def reload(self, model: str, source: str | Path, *, adapter: str | Path | None = None) -> ModelInfo:
        """Compute `model` with the weights of `source`, of the same shape, from now on; returns their facts.

        No sequence may be open (`HandleError`). Other weights, or another adapter, find nothing of what is
        cached; those that come back find their own. While they load, both are in memory. Raises
        `ModelLoadError`; the weights then stay as they are.
        """
        self._check_reloads(model)
        hosted = await anyio.to_thread.run_sync(self._hosted[model].reopen, source, adapter)
        self._check_reloads(model)  # others may have opened sequences meanwhile
        self._hosted[model], self._models[model] = hosted, hosted.info
        self._loop.post(partial(self._replace, model, hosted))
        return hosted.info

    def _replace(self, model: str, hosted: EngineModel) -> None:
        """On the engine thread, between steps."""
        self._runners[model] = hosted.runner
        self.scheduler.reload(model, hosted.info, hosted.kv_identity)

    def _check_reloads(self, model: str) -> None:
        self._require_open()
        self._handles.check_reloads(model)

    async def extend(
        self, seq: SeqId, params: ExtendParams, meter: Meter, on_tokens: OnTokens | None = None
    ) -> Extension:
        """Generate until the stop rule holds. See `Backend.extend`.

        `on_tokens` is called on the event loop with the ids of each step as they were sampled; those of a
        stop string are among them. What it raises is raised here, after the request was cancelled.
        """
        ticket = self._begin_extend(seq, params, meter, on_tokens)
        result = await self._finish(ticket)
        assert isinstance(result, Extension)
        return result

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        """Score tokens that stand on the sequence. See `Backend.score`."""
        handle = self._idle(seq, "scored")
        self._handles.check_scores(handle, params)
        ticket = self._new_ticket(handle)
        self._loop.post(partial(self.scheduler.score, ticket.request, seq, params, meter))
        result = await self._finish(ticket)
        assert isinstance(result, Scores)
        return result

    async def pin(self, seq: SeqId, ttl_s: float) -> Pinned:
        """Keep the KV of the sequence as it stands now, its whole blocks, in the cache for `ttl_s` seconds,
        also after its release; what is still to compute is kept once it is. A second pin takes the place of
        the first.

        Pins keep at most half of a model's blocks (`CapacityError`), and give way where a running request
        would fail for want of blocks.
        """
        if not ttl_s > 0:
            raise UsageError(f"ttl_s is {ttl_s}; it must be more than 0 seconds")
        ticket = self._new_ticket(self._idle(seq, "pinned"))
        until = time.monotonic() + ttl_s
        self._loop.post(partial(self.scheduler.pin, ticket.request, seq, until))
        result = await self._finish(ticket)
        assert isinstance(result, Pinned)
        return result

    async def generate(
        self,
        prompt: str | Sequence[int],
        *,
        model: str = "policy",
        max_tokens: int = 256,
        sampling: SamplingParams | None = None,
        stop: StopRule | None = None,
        seed: int | None = None,
        namespace: str = "",
        meter: Meter | None = None,
    ) -> AsyncGenerator[Chunk]:
        """Generate without a search: chunks of ids and text as they come, the last one with the reason.

        Text is encoded as it is, without a chat template. By default the model's own sampling and end ids
        hold, and the seed is drawn. Closing the generator early cancels the request.
        """
        self._handles.check_model(model)
        info = self._models[model]
        rule = stop or StopRule(eos_ids=info.profile.stop_ids)
        params = ExtendParams(sampling=sampling or info.sampling, stop=rule, max_tokens=max_tokens)
        tokens, seed = encoded(prompt, info.tokenizer), secrets.randbits(63) if seed is None else seed
        seq = self.open(tokens, seed=seed, model=model, namespace=namespace)
        try:
            buffer = TokenBuffer()
            ticket = self._begin_extend(seq, params, meter or Unlimited(), buffer.put)
            async for chunk in stream_chunks(ticket, buffer, TextStream(info, tokens, rule)):
                yield chunk
        finally:
            self.release(seq)

    def _begin_extend(
        self, seq: SeqId, params: ExtendParams, meter: Meter, on_tokens: OnTokens | None
    ) -> Ticket:
        handle = self._idle(seq, "extended")
        self._handles.check_generates(handle, params.sampling)
        self._handles.check_speculates(handle, params.speculate)
        ticket = self._new_ticket(handle, on_tokens)
        command = partial(self.scheduler.extend, ticket.request, seq, params, meter)
        self._loop.post(partial(command, streams=on_tokens is not None))
        return ticket

    async def _finish(self, ticket: Ticket) -> Extension | Scores | Pinned:
        """Wait for the outcome. Cancelled meanwhile: cancel the request, wait for the step boundary, then
        go.
        """
        try:
            await ticket.wait()
        except BaseException:
            self._cancel(ticket)
            with anyio.CancelScope(shield=True):
                await ticket.wait()
            raise
        return ticket.result()

    def _cancel(self, ticket: Ticket) -> None:
        self._loop.post(partial(self.scheduler.cancel, ticket.request))

    def _new_ticket(self, handle: Handle, on_tokens: OnTokens | None = None) -> Ticket:
        ticket = Ticket(next(self._request_ids), on_tokens)
        self._deliveries.add(ticket, handle)
        return ticket

    def _require_open(self) -> None:
        if self._closed or self._deliveries.abandoned:
            raise EngineClosed("the engine is closed")
        if self._deliveries.event_loop is None:
            raise EngineClosed("the engine is not running yet: enter it with `async with` first")

    def _idle(self, seq: SeqId, verb: str) -> Handle:
        self._require_open()
        return self._handles.idle(seq, verb)
