"""One live path of a search: a trail of steps on the engine's sequences."""

import random
from collections.abc import Sequence

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
from .caps import caps_in_force
from .clock import Path
from .events import BranchOpened, Pruned, StepDone
from .extension import Leg, extend_branch
from .graph import Node, NodeState
from .mirror import IdMirror, Mirror, open_mirror
from .run import Run, branch_seed
from .scoring import score_branch
from .speculating import checked_speculate, for_model
from .trail import Trail

MAX_UNBOUNDED_FORK = 4096
MIN_SOLUTION_TOKENS = 16
"""What a solution takes at least: `fork(None)` makes no more children than the budget could pay for at that
length."""


class SearchBranch:
    """Implements `strategies.base.Branch`, and `kv.KvHolder`, on a back end.

    `prompt` are the token ids of its root, `model` the model that its root was opened for. `busy` while it
    extends or is evaluated; `live` until it is pruned. `answer_start` is the offset of the answer phase in
    `tokens`, None while thinking.
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
        self.answer_start: int | None = None
        self.score: float | None = None
        self.verified: bool | None = None
        self.error: BaseException | None = None
        self.trail = Trail(run.graph, run.kv, self.tokenizer.decode, branch=self.id, seed=self.seed)
        self._mirrors: dict[str, Mirror] = {}
        self._children = 0
        run.enter(self)

    @classmethod
    def open(cls, run: Run, path: Path, prompt: Sequence[int], text: str, model: str) -> "SearchBranch":
        """A new root: its sequence in the engine and its node in the graph."""
        branch = cls(run, path, prompt=tuple(prompt), model=model)
        branch.mirror(model)
        branch.trail.open_root(len(branch.prompt), text)
        run.emit(BranchOpened, branch=branch.id, parent=None)
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
    def thinks(self) -> bool:
        """Whether a thinking phase comes before the answer."""
        return self.profile.thinks and self.run.think is not False

    @property
    def answering(self) -> bool:
        """Past the end of thinking; models that do not think always are."""
        return self.answer_start is not None or not self.thinks

    @property
    def thinking_text(self) -> str:
        """Text before the end of thinking, its marker apart; empty for models that do not think."""
        if not self.thinks:
            return ""
        thinking = self.trail.tokens if self.answer_start is None else self.trail.tokens[: self.answer_start]
        return self.tokenizer.decode(thinking).removesuffix(self.profile.think_end or "")

    @property
    def conclusion_text(self) -> str:
        """Text after the end of thinking, end ids apart; all of it for models that do not think."""
        if not self.answering:
            return ""
        tokens = self.trail.tokens[self.answer_start or 0 :]
        return self.tokenizer.decode([t for t in tokens if t not in self.profile.stop_ids])

    @property
    def answer(self) -> str | None:
        text = self.conclusion_text
        if not text:
            return None
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
        seeds = [child.seed for child in children]
        for model, mirror in self._mirrors.items():
            for child, forked in zip(children, self.run.backend.fork(mirror.seq, seeds), strict=True):
                child._mirrors[model] = mirror.child(forked)
        with self.run.ledger.lock:
            for child in children:
                self.run.kv.own(child)
        for child in children:
            self.run.emit(BranchOpened, branch=child.id, parent=self.id)
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
        self.busy = True
        try:
            leg = Leg(sampling or self.run.sampling, model, tuple(stop), for_model(method, model))
            return await extend_branch(self, until, max_tokens, leg)
        finally:
            self.busy = False
            self.run.touch()

    async def conclude(self, *, max_tokens: int | None = None) -> Step:
        self.check_idle("conclude")
        if self.closed:
            await anyio.lowlevel.checkpoint()
            return Step(tokens=(), text="", stop=Stop.ANSWER)
        if not self.answering:
            self._drop_unfinished_step()
            forced = await self._end_thinking()
            if forced.stop is not Stop.STOP:
                return forced
        return await self.extend(Until.ANSWER, max_tokens=max_tokens)

    async def append(self, content: str | Sequence[int]) -> Step:
        self.check_idle("append")
        run = self.run
        run.touch()
        await anyio.lowlevel.checkpoint()
        tokens = tuple(self.tokenizer.encode(content) if isinstance(content, str) else content)
        self._check_content(tokens)
        if not tokens:
            return Step(tokens=(), text="", stop=Stop.STOP)
        with run.ledger.lock:
            if not run.take_kv(self, len(tokens)):
                return Step(tokens=(), text="", stop=Stop.BUDGET)
            if not run.ledger.charge(len(tokens), 0, caps_in_force(), answering=self.answering):
                return Step(tokens=(), text="", stop=Stop.BUDGET)
            self.trail.begin(self, "forced")
            step = self.trail.end(tokens, Stop.STOP)
        self.closed = False
        self.sequence(self.model)
        self._find_think_end(len(tokens))
        self.emit_steps([step])
        return step

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
        if self.answer_start is not None and self.answer_start > position:
            self.answer_start = None
        self.closed = False

    async def evaluate(self, verifier: Verifier | None = None) -> Score:
        self.check_idle("evaluate")
        verifier = verifier or self.run.verifier
        if verifier is None:
            await anyio.lowlevel.checkpoint()
            return Score(value=None, detail="no verifier")
        self.busy = True
        try:
            return await score_branch(self, verifier)
        finally:
            self.busy = False
            self.run.touch()

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
        if not self.live:
            raise HandleError(f"{verb} on branch {self.id}: it was pruned")
        if self.busy:
            raise HandleError(f"{verb} on branch {self.id}: it is busy; await what runs on it first")

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
        child.answer_start, child.closed = self.answer_start, self.closed
        child.score, child.verified = self.score, self.verified
        return child

    def _inherited(self, model: str) -> Mirror | None:
        """A fork of the parent's mirror, so that what both have in common is computed and paid once."""
        parent = self.parent
        if parent is None or not parent.live or parent.busy:
            return None
        mirror = parent.mirror(model)
        (sequence,) = self.run.backend.fork(mirror.seq, [self.seed])
        child = mirror.child(sequence)
        child.truncate(self.trail.born_at)
        return child

    def _check_content(self, tokens: tuple[int, ...]) -> None:
        if len(tokens) > self._room:
            raise UsageError(
                f"append of {len(tokens)} tokens to branch {self.id}: its context has room for {self._room}"
            )
        size = self.run.models[self.model].vocab_size
        for token in tokens:
            if not 0 <= token < size:
                raise UsageError(
                    f"append of token {token} to branch {self.id}: the ids of {self.model} end at {size - 1}"
                )

    async def _end_thinking(self) -> Step:
        """Force the end of thinking, paid from the reserve."""
        position = len(self.trail.tokens)
        marker = self.tokenizer.encode(self.profile.think_end or "")
        if self._room < len(marker) + 1:
            return Step(tokens=(), text="", stop=Stop.CONTEXT)
        self.answer_start = position
        forced = await self.append(marker)
        self.answer_start = None if forced.stop is Stop.BUDGET else len(self.trail.tokens)
        return forced

    def _drop_unfinished_step(self) -> None:
        """A model with a mark of its own learned to conclude behind whole steps only."""
        if self.profile.step_mark is None or not self.trail.steps or self.trail.steps[-1].stop is Stop.MARK:
            return
        position = len(self.trail.tokens) - len(self.trail.steps[-1].tokens)
        self.truncate(max(position, self.trail.born_at))

    @property
    def _room(self) -> int:
        """Positions that are left in the context."""
        return self.run.models[self.model].max_model_len - len(self.prompt) - len(self.trail.tokens)

    def _find_think_end(self, appended: int) -> None:
        """Forced text may end thinking, as a model's own does."""
        if self.answering or self.profile.think_end is None:
            return
        tail = self.tokenizer.decode(self.trail.tokens[-appended:])
        if self.profile.think_end in tail:
            self.answer_start = len(self.trail.tokens)

    def _affordable(self) -> int:
        left = self.run.ledger.tokens_left(answering=False)
        if left is None:
            raise UsageError(
                "n=None, as many as the budget allows, needs a budget of tokens: give one, or give n"
            )
        return max(1, min(MAX_UNBOUNDED_FORK, left // MIN_SOLUTION_TOKENS))
