"""One live path of a search: a trail of steps on the engine's sequences."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio.lowlevel

from ..engine.errors import CapabilityError, HandleError, UsageError
from ..engine.protocol import SeqId
from ..engine.sampling.params import SamplingParams
from ..engine.text.profile import ModelProfile
from ..engine.text.stop import Stop, Until
from ..engine.text.tokenizer import Tokenizer
from ..strategies.base import Branch, Step
from ..verifiers.answer import extract_answer
from ..verifiers.base import Score, Verifier
from .answer_schema import json_answer
from .caps import caps_in_force
from .clock import ASIDE, Path
from .events import BranchOpened, Pruned, StepDone
from .extension import Leg, extend_branch
from .forced import append_to, end_thinking
from .graph import Node, NodeState, SearchGraph
from .mirror import IdMirror, Mirror, open_mirror
from .phases import Phases
from .run import Run, branch_seed, model_seed
from .scoring import score_branch
from .speculating import checked_speculate, for_model
from .steps import unfinished_from
from .told import Told
from .tools.call import Call, canonical_calls
from .trail import Trail
from .view import LedgerView

MAX_UNBOUNDED_FORK = 4096
MIN_SOLUTION_TOKENS = 16
"""What a solution takes at least: `fork(None)` makes no more children than the budget could pay for at that
length."""


class SearchBranch:
    """Implements `strategies.base.Branch`, and `kv.KvHolder`, on a back end.

    `prompt` are the token ids of its root, `model` the model that its root was opened for. `busy` while it
    extends or is evaluated; `live` until it is pruned. `phases` says where thinking ends.
    """

    def __init__(
        self,
        run: Run,
        path: Path,
        *,
        prompt: tuple[int, ...],
        model: str,
        parent: "SearchBranch | None" = None,
    ) -> None:
        self.run = run
        self.path = path
        self.id = ".".join(map(str, path))
        self.prompt = prompt
        self.model = model
        self.parent = parent
        self.seed = branch_seed(run.seed, run.problem_id, path)
        self.rng = random.Random(self.seed)
        self.live = True
        self.busy = False
        self.closed = False
        self.calls: tuple[Call, ...] = ()
        """Calls that it ends with, for the caller of the search to run."""
        self.score: float | None = None
        self.verified: bool | None = None
        self.error: BaseException | None = None
        self.trail = Trail(run.graph, run.kv, self.tokenizer.decode, branch=self.id, seed=self.seed)
        thinks = run.think is not False if parent is None else parent.phases.thinks
        self.phases = Phases(self.tokenizer, self.profile, thinks=thinks, prompt=prompt)
        self.told = Told(self, "" if parent is None else parent.told.text)
        self._mirrors: dict[str, Mirror] = {}
        self._children = 0
        self.asides = 0
        """Questions of verifiers about it so far."""
        run.enter(self)

    @classmethod
    def open(cls, run: Run, path: Path, prompt: Sequence[int], text: str, model: str) -> "SearchBranch":
        """A new root: its sequence in the engine and its node in the graph."""
        branch = cls(run, path, prompt=tuple(prompt), model=model)
        branch.mirror(model)
        branch.trail.open_root(len(branch.prompt), text)
        run.emit(BranchOpened, branch=branch.id, parent=None, start=len(branch.prompt), text=text)
        return branch

    @property
    def profile(self) -> ModelProfile:
        return self.run.models[self.model].profile

    @property
    def tokenizer(self) -> Tokenizer:
        return self.run.models[self.model].tokenizer

    @property
    def nodes(self) -> list[Node]:
        """`KvHolder`: the path in the graph; empty for a branch of another model, whose positions are not
        the policy's."""
        return self.trail.nodes if self.model == self.run.policy else []

    @property
    def budget(self) -> LedgerView:
        """What is left for its search, within the phases in force."""
        return LedgerView(self.run.ledger, self.run.kv, caps_in_force())

    @property
    def graph(self) -> SearchGraph:
        """The graph of its search."""
        return self.run.graph

    @property
    def tokens(self) -> Sequence[int]:
        return self.trail.tokens

    @property
    def steps(self) -> Sequence[Step]:
        return self.trail.steps

    @property
    def depth(self) -> int:
        return len(self.trail.steps)

    @property
    def text(self) -> str:
        return self.tokenizer.decode(self.trail.tokens)

    @property
    def answering(self) -> bool:
        """Past the end of thinking; models that do not think always are."""
        return self.phases.answering

    @property
    def aside(self) -> bool:
        """Whether a verifier asks a model on it: it is no work on a solution."""
        return self.path[0] == ASIDE

    @property
    def draws_on_reserve(self) -> bool:
        """Whether the tokens that are kept for answers may be spent here."""
        return self.answering and not self.aside

    @property
    def thinking(self) -> bool:
        return not self.phases.answering

    @property
    def thinking_length(self) -> int:
        return self.phases.thinking_length(self.trail.tokens)

    @property
    def thinking_begun(self) -> bool:
        return self.phases.begun(self.trail.tokens)

    @property
    def conclusion(self) -> str:
        return self.phases.conclusion_text(self.trail.tokens)

    @property
    def room(self) -> int:
        return self.run.models[self.model].max_model_len - len(self.prompt) - len(self.trail.tokens)

    @property
    def answer(self) -> str | None:
        if self.calls:
            return canonical_calls(self.calls)
        text = self.conclusion
        if not text:
            return None
        if self.run.tools is not None and self.run.tools.required and not self.aside:
            return None
        if self.run.schema is not None and not self.aside:
            return json_answer(text) if self.closed else None
        task = self.run.problem.task
        return task.extract(text) if task is not None else extract_answer(text)

    @property
    def complete(self) -> bool:
        return self.closed

    @property
    def mean_logprob(self) -> float | None:
        trail = self.trail
        return trail.logprob_sum / trail.logprob_count if trail.logprob_count else None

    def fork(self, n: int | None) -> list[Branch]:
        self.check_idle("fork")
        count = self._affordable() if n is None else n
        if count < 1:
            raise UsageError(f"fork({n}): a branch forks into 1 child or more")
        self.run.touch()
        children = [self._child((*self.path, self._children + i)) for i in range(count)]
        self._children += count
        for model, mirror in self._mirrors.items():
            seeds = [child.seed_on(model) for child in children]
            for child, forked in zip(children, self.run.backend.fork(mirror.seq, seeds), strict=True):
                child._mirrors[model] = mirror.child(forked)
        with self.run.ledger.lock:
            for child in children:
                self.run.kv.own(child)
        start = self.trail.prompt_length + len(self.trail.tokens)
        for child in children:
            self.run.emit(BranchOpened, branch=child.id, parent=self.id, start=start)
        return list(children)

    async def extend(
        self,
        until: Until = Until.STEP,
        *,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        model: str = "policy",
        speculate: str | None = None,
        stop: Sequence[str] = (),
    ) -> Step:
        self.check_idle("extend")
        method = self.run.speculate if speculate is None else checked_speculate(speculate, self.run.backend)
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"extend(max_tokens={max_tokens}): give 1 or more")
        if self.model != self.run.policy and model == "policy":
            model = self.model
        with self._at_work(), self.run.until_closed():
            sampling = self.run.telling(sampling or self.run.sampling)
            if self.model == self.run.policy and not self.aside:
                sampling = self.run.biased(sampling)
            leg = Leg(sampling, model, tuple(stop), for_model(method, model))
            return await extend_branch(self, until, max_tokens, leg)

    async def conclude(self, *, max_tokens: int | None = None) -> Step:
        self.check_idle("conclude")
        if self.closed:
            await anyio.lowlevel.checkpoint()
            return Step(tokens=(), text="", stop=Stop.ANSWER)
        if not self.answering:
            self._drop_unfinished_step()
            with self._at_work():
                forced = await end_thinking(self)
            if forced.stop is not Stop.STOP:
                return forced
        return await self.extend(Until.ANSWER, max_tokens=max_tokens)

    async def append(self, content: str | Sequence[int]) -> Step:
        self.check_idle("append")
        with self._at_work():
            return await append_to(self, content)

    def truncate(self, position: int) -> None:
        self.check_idle("truncate")
        length, born_at = len(self.trail.tokens), self.trail.born_at
        if not born_at <= position <= length:
            raise UsageError(
                f"truncate({position}) of branch {self.id}: "
                f"give a position from {born_at} (where it was forked) to {length}"
            )
        self.run.touch()
        if position == length:
            return
        with self.run.ledger.lock:
            self.trail.truncate(self, position)
        for mirror in self._mirrors.values():
            mirror.truncate(position)
        self.phases.cut(position)
        self.closed, self.calls = False, ()
        self.told.settle(self.told.phase)

    async def evaluate(self, verifier: Verifier | None = None) -> Score:
        self.check_idle("evaluate")
        verifier = verifier or self.run.verifier
        if verifier is None:
            await anyio.lowlevel.checkpoint()
            return Score(value=None, detail="no verifier")
        with self._at_work(), self.run.until_closed():
            return await score_branch(self, verifier)

    def prune(self, reason: str) -> None:
        if not self.live:
            return
        self.live = False
        self.run.leave(self)
        self.run.touch()
        with self.run.ledger.lock:
            self.run.kv.disown(self)
        for mirror in self._mirrors.values():
            self.run.backend.release(mirror.seq, pruned=not self.run.closing)
        for node in self.trail.own_nodes():
            if node.state is NodeState.LIVE:
                node.state, node.reason = NodeState.PRUNED, reason
        self.run.emit(Pruned, branch=self.id, reason=reason)

    def park_blocks(self) -> None:
        """`KvHolder`: give the blocks back; the next use recomputes them."""
        for mirror in self._mirrors.values():
            self.run.backend.park(mirror.seq)

    def check_idle(self, verb: str) -> None:
        """Raises `HandleError` where the branch is pruned or busy."""
        self.check_live(verb)
        if self.busy:
            raise HandleError(f"{verb} on branch {self.id}: it is busy; await what runs on it first")

    def check_live(self, verb: str) -> None:
        """Raises `HandleError` where the branch is pruned."""
        if not self.live:
            raise HandleError(f"{verb} on branch {self.id}: it was pruned")

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Nothing else may be done on the branch inside the block."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
            self.run.touch()

    def seed_on(self, model: str) -> int:
        """What seeds `model` on this branch. A step that another model drafts has noise of its own: were it
        the same, the rewriting of a rejected step would repeat it."""
        return self.seed if model == self.model else model_seed(self.seed, model)

    def mirror(self, model: str) -> Mirror:
        """The branch as `model` reads it, which may lack the last tokens; opened at its first use."""
        if model not in self._mirrors:
            inherited = self._inherited(model)
            self._mirrors[model] = inherited or open_mirror(self, model)
        return self._mirrors[model]

    def sequence(self, model: str) -> SeqId:
        """The branch's sequence on a model that shares its ids, brought up to its tokens."""
        mirror = self.mirror(model)
        if not isinstance(mirror, IdMirror):
            raise CapabilityError(f"model {model!r} scores steps in its own words: it cannot extend a branch")
        mirror.follow(self.trail.tokens)
        return mirror.seq

    def generated_on(self, model: str) -> None:
        """The engine already put the branch's last tokens on its sequence of `model`."""
        mirror = self._mirrors[model]
        assert isinstance(mirror, IdMirror)
        mirror.synced = len(self.trail.tokens)

    def emit_steps(self, steps: Sequence[Step]) -> None:
        """Tell the watchers of new steps."""
        if not self.run.watched:
            return
        for step in steps:
            self.run.emit(
                StepDone,
                branch=self.id,
                text=step.text,
                stop=str(step.stop),
                tokens=len(step.tokens),
                answer=self.answer if step is steps[-1] else None,
            )

    def _child(self, path: Path) -> "SearchBranch":
        child = SearchBranch(self.run, path, prompt=self.prompt, model=self.model, parent=self)
        child.trail = self.trail.child(child.id, child.seed)
        child.phases.inherit(self.phases)
        child.closed, child.calls = self.closed, self.calls
        child.score, child.verified = self.score, self.verified
        return child

    def _inherited(self, model: str) -> Mirror | None:
        """A fork of the parent's mirror, so that what both have in common is computed and paid once."""
        parent = self.parent
        if parent is None or not parent.live or parent.busy:
            return None
        mirror = parent.mirror(model)
        (sequence,) = self.run.backend.fork(mirror.seq, [self.seed_on(model)])
        child = mirror.child(sequence)
        child.truncate(self.trail.born_at)
        return child

    def _drop_unfinished_step(self) -> None:
        """A model with a mark of its own learned to conclude behind whole steps only."""
        if self.profile.step_mark is not None:
            self.truncate(max(unfinished_from(self), self.trail.born_at))

    def _affordable(self) -> int:
        left = self.budget.tokens_left
        if left is None:
            raise UsageError(
                "n=None, as many as the budget allows, needs a budget of tokens: give one, or give n"
            )
        return max(1, min(MAX_UNBOUNDED_FORK, left // MIN_SOLUTION_TOKENS))
