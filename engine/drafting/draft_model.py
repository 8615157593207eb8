"""A smaller model of the engine writes the drafts, on mirrors of the sequences it drafts for.

A mirror is an ordinary sequence of the draft model, and a draft an ordinary request on it: its own pool, its
own `computed`, preemption, chunks and prefix cache are the scheduler's. It has the target's seed. To be
verified by coupled noise it draws with the target's noise at every position: it agrees where the two
distributions put the same token first under that noise. For the ratio test it draws with noise apart, and
hands over the distributions that it drew from. What was rejected is cut off the mirror, and what the target
took instead is appended: `computed` chases `known` there too, the bonus token included.

While a draft is being written its target is held, and verifies all of it in one step afterwards.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from itertools import count

import msgspec

from ..protocol import ExtendParams, SeqId, Unlimited
from ..sampling.drafting import Drafted, Drafting, Proposal
from ..sched.board import Board
from ..sched.draft import Draft
from ..sched.family import Family
from ..sched.memory import ModelMemory
from ..sched.plan import Drawn
from ..sched.request import ExtendRequest, RequestState
from ..sched.sequence import Sequence
from ..text.stop import Stop, StopRule
from .params import DraftModel


class _Mirror:
    """`tokens` of `sequence` agree with the target's up to `base`, its length when the draft began; those
    behind are the draft, and `told` what their draws told."""

    __slots__ = ("base", "sequence", "told")

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence
        self.base = 0
        self.told: list[Drafted] = []


class _DraftRequest(ExtendRequest):
    """Writes a draft, and keeps what its draws tell."""

    __slots__ = ("_told",)

    def __init__(self, request: int, mirror: _Mirror, params: ExtendParams, drafting: Drafting) -> None:
        super().__init__(request, mirror.sequence, params, Unlimited(), _NeverStops(), streams=False)
        self.drafting = drafting if any(drafting) else None
        self._told = mirror.told = []

    @property
    def drafts_apart(self) -> bool:
        """Whether it draws for the ratio test."""
        return self.drafting is not None and self.drafting.own_noise

    def accept(self, found: Drawn) -> Stop | None:
        self._told.append(found.drafted or Drafted())
        return super().accept(found)


class _Writing:
    """A draft in progress: the mirror's request, and the target's that waits for it."""

    __slots__ = ("own", "target")

    def __init__(self, own: _DraftRequest, target: ExtendRequest) -> None:
        self.own = own
        self.target = target


class DraftModels:
    """Implements `Drafter` over the models of `memories`; `start` begins a draft some steps ahead."""

    def __init__(self, memories: Mapping[str, ModelMemory], family: Family, board: Board) -> None:
        self._memories = memories
        self._family = family
        self._board = board
        self._mirrors: dict[SeqId, _Mirror] = {}
        self._writing: list[_Writing] = []
        self._request_ids = count(-1, -1)

    def propose(self, sequence: Sequence, k: int, paths: int) -> Seq[Seq[int]]:
        """The draft, then what branches off it to the runner-up of each place, from the first on."""
        mirror = self._mirrors.get(sequence.id)
        if mirror is None or mirror.base != sequence.known:
            return ()
        chain = mirror.sequence.tokens[mirror.base : mirror.base + k]
        places = enumerate(mirror.told[: min(paths - 1, len(chain))])
        return [chain, *[[*chain[:place], *told.runners_up] for place, told in places if told.runners_up]]

    def proposals(self, sequence: Sequence) -> list[Proposal]:
        """The draft for the present end of the sequence, for the ratio test; empty where none was written."""
        mirror = self._mirrors.get(sequence.id)
        if mirror is None or mirror.base != sequence.known:
            return []
        return [
            Proposal(token, told.q)
            for token, told in zip(mirror.sequence.tokens[mirror.base :], mirror.told, strict=True)
        ]

    def observe(self, sequence: Sequence) -> None:
        return None

    def forget(self, sequence: Sequence) -> None:
        """The sequence was cut or has ended: what its mirror holds goes."""
        mirror = self._mirrors.pop(sequence.id, None)
        if mirror is None:
            return
        self._drop([w for w in self._writing if w.own.seq is mirror.sequence])
        self._family.release(mirror.sequence)

    def has_draft(self, sequence: Sequence) -> bool:
        """Whether a draft for the present end of the sequence was begun, and perhaps written."""
        mirror = self._mirrors.get(sequence.id)
        return mirror is not None and mirror.base == sequence.known

    def start(self, request: ExtendRequest, method: DraftModel, k: int) -> bool:
        """Hold the request until the model has written `k` tokens, fewer at the end of its context; false
        where there is no room for any."""
        memory = self._memories[method.model]
        if request.seq.known >= memory.max_len:
            return False
        mirror = self._synced(request.seq, memory)
        sampling = msgspec.structs.replace(
            request.params.sampling, processed_logprobs=False, top_logprobs=0, stats_top_k=0
        )
        params = ExtendParams(
            sampling=sampling,
            stop=StopRule(eos_ids=request.params.stop.eos_ids),
            max_tokens=k,
            order=request.params.order,
            priority=request.params.priority,
        )
        drafting = Drafting(own_noise=method.verify == "ratio", runners_up=int(method.paths > 1))
        own = _DraftRequest(next(self._request_ids), mirror, params, drafting)
        self._board.submit(own)
        self._writing.append(_Writing(own, request))
        request.held = True
        return True

    def collect(self) -> None:
        """Let go of the requests whose draft is written, and of drafts whose request ended."""
        self._drop([w for w in self._writing if RequestState.DONE in (w.own.state, w.target.state)])

    def drop_idle(self, draft: Draft) -> bool:
        """Drafts that got no row in this step hold nobody back: whether there were such. Those for the ratio
        test, on which the text depends, are waited for as long as anything can run."""
        idle = [
            w
            for w in self._writing
            if not draft.touches(w.own.seq.holder) and (draft.empty or not w.own.drafts_apart)
        ]
        self._drop(idle)
        return bool(idle)

    def _drop(self, dropped: list[_Writing]) -> None:
        for writing in dropped:
            self._writing.remove(writing)
            writing.target.held = False
            if writing.own.state is not RequestState.DONE:
                self._board.stop(writing.own, Stop.CANCELLED)

    def _synced(self, target: Sequence, memory: ModelMemory) -> _Mirror:
        """The target's mirror, brought to its tokens."""
        mirror = self._mirrors.get(target.id)
        if mirror is None or mirror.sequence.memory is not memory:
            self.forget(target)
            mirror = self._mirrors[target.id] = _Mirror(self._family.mirror(target, memory))
        own = mirror.sequence
        agreed = min(mirror.base, own.known)
        while agreed < min(own.known, target.known) and own.tokens[agreed] == target.tokens[agreed]:
            agreed += 1
        self._family.truncate(own, max(agreed, 1))
        self._family.append(own, target.tokens[own.known :])
        mirror.base = target.known
        return mirror


class _NeverStops:
    """What ends a draft: its length alone. The target's end ids are in its rule for `min_tokens` only."""

    def __init__(self) -> None:
        self._pushed = 0

    def push(self, token: int) -> Stop | None:
        self._pushed += 1
        return None

    def kept(self) -> int:
        return self._pushed

    def tail(self) -> tuple[int, ...]:
        return ()
