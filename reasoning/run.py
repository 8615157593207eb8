"""The state that all parts of one search share: engine, ledger, clock, graph and events."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import msgspec
import structlog

from ..engine.drafting.params import Speculate
from ..engine.errors import CapabilityError, HandleError
from ..engine.protocol import Backend, EngineUsage, ModelInfo, Verdict
from ..engine.sampling.params import SamplingParams
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from .admission import Admission
from .answer_schema import AnswerSchema
from .budget import Budget
from .clock import Clock, LogicalClock, Path, Ticket, WallClock
from .electorate import Electorate
from .events import Event
from .failure import said
from .graph import SearchGraph
from .kv import KvHolder, OwnedKv, Room
from .ledger import Cap, Ledger
from .settle import Rest, Settler
from .written import Written

if TYPE_CHECKING:
    from .tools.box import ToolBox

log = structlog.get_logger(__name__)


def branch_seed(run_seed: int, problem_id: str, path: Path) -> int:
    """The 64-bit seed of a branch: a hash of run, problem and path, so that no two branches share their
    noise."""
    text = f"{run_seed}\x00{len(problem_id)}\x00{problem_id}\x00{'.'.join(map(str, path))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def model_seed(seed: int, model: str) -> int:
    """The 64-bit seed of a branch's sequence on another model than its own."""
    text = f"{seed}\x00{model}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Prunable(Protocol):
    """A branch as the run holds it until it is pruned."""

    path: Path

    def prune(self, reason: str) -> None: ...


class Run:
    """One search in progress, as its branches see it."""

    def __init__(
        self,
        *,
        backend: Backend,
        model_name: str,
        problem: Problem,
        budget: Budget,
        seed: int,
        verifier: Verifier | None,
        step_verifier: Verifier | None = None,
        sampling: SamplingParams,
        stats_top_k: int = 0,
        settler: Settler | None,
        step_tokens: int = 256,
        step_mark: str | None = None,
        tokens_per_step: int | None = None,
        max_tokens: int | None = None,
        think: bool | None = None,
        speculate: Speculate | None = None,
        stop: Sequence[str] = (),
        prompt_logprobs: int | None = None,
        schema: AnswerSchema | None = None,
        tools: "ToolBox | None" = None,
        namespace: str = "",
        tenant: str | None = None,
        priority: int = 0,
        on_event: Callable[[Event], None] | None = None,
        deltas: bool = False,
    ) -> None:
        self.backend = backend
        self.models: Mapping[str, ModelInfo] = backend.models
        self.policy = "policy"
        self.model_name = model_name
        self.problem = problem
        self.problem_id = problem.id or problem.text
        self.seed = seed
        self.verifier = verifier
        self.step_verifier = step_verifier
        self.sampling = sampling
        self.stats_top_k = stats_top_k
        """Statistics that a verifier wants with each token (`SamplingParams.stats_top_k`)."""
        self.step_tokens = step_tokens
        self.step_mark = step_mark
        self.tokens_per_step = tokens_per_step
        self.max_tokens = max_tokens
        self.think = think
        self.speculate = speculate
        self.stop = tuple(stop)
        """Texts that end an answer, and are no part of it."""
        self.prompt_logprobs = prompt_logprobs
        """Alternatives to tell with each token of the prompt, None where nobody asks for those tokens."""
        self.prompt: Written | None = None
        self.schema = schema
        self.tools = tools
        self.grammar = schema or (tools.grammar if tools is not None else None)
        """What the answer phase must be."""
        self.namespace = namespace
        self.tenant = tenant
        self.priority = priority
        self.usage = EngineUsage()
        self.closing = False
        """The search is over: what its branches wrote may be wanted by the next turn."""
        self.graph = SearchGraph()
        self.electorate = Electorate(problem, self.outside, exact=schema is not None)
        self.notes: list[str] = []
        self.failures: list[BaseException] = []
        self.failed_verifiers: set[str] = set()
        """Names of verifiers that could not do their work at least once."""
        self.kv = OwnedKv(budget.kv_tokens)
        profile = self.models[self.policy].profile
        self.ledger = Ledger(budget, thinks=profile.thinks and think is not False)
        self.clock: Clock = LogicalClock() if settler is not None else WallClock()
        self.admission = Admission(self.ledger, reproducible=settler is not None)
        self.rest: Rest | None = None
        self._settler = settler
        if settler is not None and isinstance(self.clock, LogicalClock):
            self.rest = Rest(self.clock, settler)
            self.clock.moved = self.rest.touch
            settler.register(self.rest, self)
        self._thread = threading.get_ident()
        self._on_event = on_event
        self._watcher_failed = False
        self.deltas = deltas and on_event is not None
        """Whether somebody watches the text as it comes (`told.Told`)."""
        self._holders: dict[Path, KvHolder] = {}
        self._live: dict[Path, Prunable] = {}
        self._waits: set[anyio.CancelScope] = set()
        self._roots = 0

    def model(self, name: str) -> ModelInfo:
        """The open model of that name. Raises `CapabilityError` where there is none."""
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise CapabilityError(
                f"model {name!r} is not open: open a model under that name, or use one of: {known}"
            )
        return self.models[name]

    def telling(self, sampling: SamplingParams) -> SamplingParams:
        """The sampling with the statistics that the run's verifiers want, and as many alternatives as the
        run's own sampling tells."""
        stats, leading = self.stats_top_k, self.sampling.top_logprobs
        if sampling.stats_top_k >= stats and sampling.top_logprobs >= leading:
            return sampling
        return msgspec.structs.replace(
            sampling,
            stats_top_k=max(stats, sampling.stats_top_k),
            top_logprobs=max(leading, sampling.top_logprobs),
        )

    def biased(self, sampling: SamplingParams) -> SamplingParams:
        """The sampling with the logit biases of the run's own, which hold whatever a strategy draws with."""
        own = self.sampling.logit_bias
        if not own or sampling.logit_bias == own:
            return sampling
        return msgspec.structs.replace(sampling, logit_bias={**own, **sampling.logit_bias})

    def next_root(self) -> Path:
        """The path of a new root."""
        self._roots += 1
        return (self._roots - 1,)

    def enter(self, branch: "Prunable") -> None:
        """A branch came to be. Raises `HandleError` where the search is over."""
        if self.closing:
            raise HandleError(f"branch {'.'.join(map(str, branch.path))}: the search is over")
        self._live[branch.path] = branch

    def leave(self, branch: "Prunable") -> None:
        """A branch was pruned."""
        self._live.pop(branch.path, None)
        self._holders.pop(branch.path, None)

    def live_below(self, path: Path) -> "list[Prunable]":
        """The live branches that descend from the one at `path`, by path."""
        depth = len(path)
        return [self._live[p] for p in sorted(self._live) if len(p) > depth and p[:depth] == path]

    @contextmanager
    def until_closed(self) -> Iterator[None]:
        """Work on a branch. It ends with the run, also where nobody cancels its task (`HandleError`): the
        event that it waits for would not come."""
        with anyio.CancelScope() as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)
        if wait.cancelled_caught:
            raise HandleError("the search is over")

    def close(self) -> None:
        """The search is over: prune what lives and end what runs; the settler forgets it."""
        self.closing = True
        self.ledger.close()
        for branch in list(self._live.values()):
            branch.prune("search ended")
        for wait in self._waits:
            wait.cancel()
        if self._settler is not None and self.rest is not None:
            self._settler.forget(self.rest)

    def touch(self) -> None:
        """A task of this search is on its way: no token is granted until it came to rest."""
        if self.rest is not None:
            self.rest.touch()

    def wake(self) -> None:
        """An event may be due. From the engine's thread the settler learns of it at the next delivery."""
        if self.rest is None:
            return
        if threading.get_ident() == self._thread:
            self.rest.touch()
        else:
            self.rest.wake_from_thread()

    def outside(self, delta: int) -> None:
        """A task waits for work that is not the engine's (+1), or has it (-1): the search cannot settle
        meanwhile."""
        if self.rest is not None:
            self.rest.external += delta
            self.rest.touch()

    def emit(self, event: Callable[..., Event], **fields: Any) -> None:
        """Send an event to whoever watches. A watcher that fails costs the search nothing: the first failure
        is noted."""
        if self._on_event is None:
            return
        spent = {"tokens_spent": self.ledger.tokens_spent, "flops_spent": self.ledger.flops_spent}
        told = event(problem_id=self.problem_id, **spent, kv_owned=self.kv.owned, **fields)
        try:
            self._on_event(told)
        except Exception as error:
            if not self._watcher_failed:
                self._watcher_failed = True
                self.notes.append(f"on_event failed: {said(error)}")
                log.warning("on_event failed", reason=said(error), exc_info=error)

    @property
    def watched(self) -> bool:
        return self._on_event is not None

    def scarce(self, caps: tuple[Cap, ...]) -> bool:
        """Whether one more token for every running branch may not be covered, by the budget or by the caps in
        force, so that the order of grants matters; and that of refusals, since who is refused first is
        delivered first. What is left for thinking counts for answers too: these take from it."""
        if self.ledger.limits_flops or self.kv.cap is not None:
            return True
        if any(cap.flops is not None for cap in caps):
            return True
        limits = [limit.tokens_left(answering=False) for limit in (self.ledger, *caps)]
        return any(left is not None and left < self.clock.running_count for left in limits)

    def no_room(self, room: Room) -> Verdict:
        """The verdict for a branch at the KV cap."""
        match room:
            case Room.NEVER:
                self.ledger.refused = self.kv.refused = True
                return Verdict.REFUSED
            case Room.YIELD:
                self.wake()
                return Verdict.YIELD
        self.wake()
        self.backend.notify()
        return Verdict.DEFER

    def take_kv(self, holder: KvHolder, positions: int) -> bool:
        """Let an idle branch be used and own `positions` more, where the cap allows it."""
        taken = self.kv.take(holder, positions)
        self.ledger.refused |= not taken
        return taken

    def try_resume(self, ticket: Ticket, holder: KvHolder) -> bool:
        """Let a suspended branch go on where it fits again. In logical time this waits until the search is
        at rest."""
        if isinstance(self.clock, LogicalClock):
            return False
        return self._resume(ticket, holder)

    def _resume(self, ticket: Ticket, holder: KvHolder) -> bool:
        if not self.kv.may_resume(holder, self.clock.running()):
            return False
        self.clock.resume(ticket)
        self.kv.use(holder)
        return True

    def track_holder(self, holder: KvHolder) -> None:
        """Remember the branch of a running ticket, so that it can be resumed."""
        self._holders[holder.path] = holder

    def advance(self) -> bool:
        """`SettleHook`: deliver the next event, else start or resume what waits."""
        clock = self.clock
        assert isinstance(clock, LogicalClock)
        with self.ledger.lock:
            return clock.deliver_next() or self._resume_suspended(clock) or self.admission.start_waiting()

    def _resume_suspended(self, clock: LogicalClock) -> bool:
        for ticket in clock.suspended():
            holder = self._holders.get(ticket.path)  # none: the branch was pruned and its request is ending
            if holder is not None and self._resume(ticket, holder):
                return True
        return False

    def on_settled(self) -> None:
        """`SettleHook`: nothing is on its way, the engine may grant again."""
        self.backend.notify()
