"""A branch as another model reads it: the same ids, or each step once more in the model's own words."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..engine.errors import CapabilityError
from ..engine.protocol import Backend, ModelInfo, SeqId
from ..engine.text.step_format import StepFormat
from ..engine.text.tokenizer import Tokenizer, shares_ids
from .graph import Node

if TYPE_CHECKING:
    from .branch import SearchBranch


class Mirror(Protocol):
    """One sequence of the engine that stands for a branch. Positions of the branch count from behind its
    prompt; positions of the sequence are absolute."""

    seq: SeqId

    @property
    def length(self) -> int:
        """Positions of the sequence."""
        ...

    def rows(self, tokens: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
        """Bring the sequence up to the branch's `tokens` as far as `positions`, the last ones of steps, need
        it; the positions of the sequence where the scores of those steps are read."""
        ...

    def layout(self, nodes: list[Node]) -> tuple[list[Node], list[int]]:
        """The nodes of the branch's path that the sequence's positions belong to, and where each begins."""
        ...

    def truncate(self, position: int) -> None:
        """The branch keeps its tokens before `position`."""
        ...

    def child(self, seq: SeqId) -> "Mirror":
        """The mirror of a branch that was forked from this one, `seq` from this one's sequence."""
        ...


class IdMirror:
    """Implements `Mirror` for a model with the branch's vocabulary. `synced` tokens of the branch stand on
    the sequence, behind its prompt."""

    def __init__(self, backend: Backend, seq: SeqId, prompt: int, synced: int = 0) -> None:
        self.seq = seq
        self.synced = synced
        self._backend = backend
        self._prompt = prompt

    @property
    def length(self) -> int:
        return self._prompt + self.synced

    def follow(self, tokens: Sequence[int]) -> None:
        """Append what the sequence lacks of the branch's `tokens`."""
        missing = tokens[self.synced :]
        if missing:
            self._backend.append(self.seq, missing)
            self.synced = len(tokens)

    def rows(self, tokens: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
        self.follow(tokens)
        return tuple(self._prompt + position for position in positions)

    def layout(self, nodes: list[Node]) -> tuple[list[Node], list[int]]:
        return nodes, [node.start for node in nodes]

    def truncate(self, position: int) -> None:
        if self.synced > position:
            self._backend.truncate(self.seq, self._prompt + position)
            self.synced = position

    def child(self, seq: SeqId) -> "IdMirror":
        return IdMirror(self._backend, seq, self._prompt, self.synced)


class _Unit(NamedTuple):
    """Tokens of the branch up to `stop` stand on the sequence up to `end`."""

    stop: int
    end: int


class Reading(NamedTuple):
    """How a step scorer reads a branch: the format and encoder of the scorer; `decode` and the end ids of the
    branch's own model."""

    form: StepFormat
    scorer: Tokenizer
    own: Tokenizer
    end_ids: frozenset[int]

    def prompt(self, problem: str) -> tuple[int, ...]:
        """The scorer's ids of the problem."""
        return self.form.prompt(problem, self.scorer.encode)

    def step(self, index: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """The scorer's ids of step `index`, given as ids of the branch."""
        text = self.own.decode([token for token in tokens if token not in self.end_ids])
        return self.form.step(index, text, self.scorer.encode)


class StepMirror:
    """Implements `Mirror` for a scorer with another tokenizer or template.

    Each step is encoded once: the text of the branch between two positions that were asked for. A step that
    was cut is read as part of the one that ends behind it. Forks share the encoded steps, as they share KV.
    """

    def __init__(
        self, backend: Backend, seq: SeqId, reading: Reading, prompt: int, units: Sequence[_Unit] = ()
    ) -> None:
        """`prompt` is the length of the prompt that stands on the sequence."""
        self.seq = seq
        self._backend = backend
        self._reading = reading
        self._prompt = prompt
        self._units = list(units)

    @property
    def length(self) -> int:
        return self._units[-1].end if self._units else self._prompt

    def rows(self, tokens: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
        stops = sorted({*(unit.stop for unit in self._units), *(position + 1 for position in positions)})
        kept = 0
        while kept < len(self._units) and self._units[kept].stop == stops[kept]:
            kept += 1
        self._keep(kept)
        for stop in stops[kept:]:
            self._add(tokens, stop)
        ends = {unit.stop: unit.end for unit in self._units}
        return tuple(ends[position + 1] - 1 for position in positions)

    def layout(self, nodes: list[Node]) -> tuple[list[Node], list[int]]:
        firsts = [node.start for node in nodes]
        prompt = nodes[0].length
        holders, starts, start = [nodes[0]], [0], self._prompt
        for unit in self._units:
            holders.append(nodes[bisect_right(firsts, prompt + unit.stop - 1) - 1])
            starts.append(start)
            start = unit.end
        return holders, starts

    def truncate(self, position: int) -> None:
        self._keep(sum(unit.stop <= position for unit in self._units))

    def child(self, seq: SeqId) -> "StepMirror":
        return StepMirror(self._backend, seq, self._reading, self._prompt, self._units)

    def _keep(self, count: int) -> None:
        """Drop all units but the first `count`."""
        if count < len(self._units):
            del self._units[count:]
            self._backend.truncate(self.seq, self.length)

    def _add(self, tokens: Sequence[int], stop: int) -> None:
        start = self._units[-1].stop if self._units else 0
        ids = self._reading.step(len(self._units), tokens[start:stop])
        self._backend.append(self.seq, ids)
        self._units.append(_Unit(stop, self.length + len(ids)))


def open_mirror(branch: "SearchBranch", model: str) -> Mirror:
    """A new sequence of `model` for the branch, with the prompt on it. `CapabilityError` where the model is
    not open, or reads neither the branch's ids nor its text."""
    run = branch.run
    reading = find_reading(run.model(branch.model), run.model(model))
    prompt = branch.prompt if reading is None else reading.prompt(branch.trail.nodes[0].text)
    sequence = run.backend.open(
        prompt,
        seed=branch.seed_on(model),
        model=model,
        namespace=run.namespace,
        tenant=run.tenant,
        usage=run.usage,
    )
    if reading is None:
        return IdMirror(run.backend, sequence, len(prompt))
    return StepMirror(run.backend, sequence, reading, len(prompt))


def find_reading(writer: ModelInfo, reader: ModelInfo) -> Reading | None:
    """How `reader` reads what `writer` wrote; None: as the same ids. `CapabilityError` where it cannot."""
    shared = shares_ids(writer.tokenizer, reader.tokenizer)
    if shared and (reader.steps is None or not reader.steps.published):
        return None
    if reader.steps is None:
        raise CapabilityError(
            f"model {reader.name!r} has another vocabulary than {writer.name!r}: ids cannot be shared"
        )
    return Reading(reader.steps, reader.tokenizer, writer.tokenizer, writer.profile.stop_ids)
