"""What the event loop's side knows of sequences: enough to refuse a wrong call at once, in the caller's own
frame.
"""

from collections.abc import Mapping, Sequence

import msgspec

from .checked import whole_numbers
from .drafting.params import DraftModel, Speculate
from .errors import CapabilityError, CapacityError, HandleError, UsageError
from .protocol import ModelInfo, ScoreParams, SeqId
from .sampling.params import SamplingParams


class Handle(msgspec.Struct):
    """A sequence as of the commands posted and the outcomes delivered so far."""

    model: str
    known: int
    busy: bool = False


def check_open(models: Mapping[str, object], model: str) -> None:
    """Raises `UsageError` for a model that is none of these."""
    if model not in models:
        raise UsageError(f"no model {model!r} is open; open are {', '.join(sorted(models))}")


def fitting_tokens(
    models: Mapping[str, ModelInfo], model: str, tokens: Sequence[int], *, behind: int
) -> tuple[int, ...]:
    """The ids that are to stand behind `behind` others. Raises `UsageError` for those that the model does not
    have, and `CapacityError` for more than its context holds."""
    check_open(models, model)
    tokens, info = whole_numbers("tokens", tokens), models[model]
    if not (tokens or behind):
        raise UsageError("a sequence needs at least one token; the prompt is empty")
    size = info.vocab_size
    if tokens and (min(tokens) < 0 or max(tokens) >= size):
        wrong = next(token for token in tokens if not 0 <= token < size)
        raise UsageError(f"token id {wrong} is not in the vocabulary of {model!r} (0 to {size - 1})")
    positions, context = behind + len(tokens), info.max_model_len
    if positions > context:
        raise CapacityError(f"{positions} tokens exceed the context of {model!r}: {context} positions")
    return tokens


class Handles:
    """The live handles and the checks of calls on them. `max_len` is what one sequence can hold, per
    model.
    """

    def __init__(self, models: Mapping[str, ModelInfo], max_len: Mapping[str, int]) -> None:
        self._models = models
        self._max_len = max_len
        self._live: dict[SeqId, Handle] = {}

    def add(self, seq: SeqId, model: str, known: int) -> None:
        self._live[seq] = Handle(model, known)

    def remove(self, seq: SeqId) -> bool:
        """Whether the handle was live until now."""
        return self._live.pop(seq, None) is not None

    def check_reloads(self, model: str) -> None:
        """Refuse other weights under open sequences; those of one model may be drafted for by another."""
        self.check_model(model)
        if self._live:
            raise HandleError(
                f"{len(self._live)} sequences are open; release them before {model!r} gets other weights"
            )

    def ended(self, seq: SeqId, known: int) -> None:
        """What ran on the sequence ended, and left it `known` tokens long."""
        handle = self._live.get(seq)
        if handle is not None:
            handle.known, handle.busy = known, False

    def idle(self, seq: SeqId, verb: str) -> Handle:
        """The handle, if it is live and nothing runs on it."""
        handle = self._live.get(seq)
        if handle is None:
            raise HandleError(f"sequence {seq} is unknown or was released; it cannot be {verb}")
        if handle.busy:
            raise HandleError(f"sequence {seq} is being extended or scored; it cannot be {verb} meanwhile")
        return handle

    def check_model(self, model: str) -> None:
        check_open(self._models, model)

    def checked_tokens(self, model: str, tokens: Sequence[int], *, behind: int) -> tuple[int, ...]:
        """The ids; refuse those that the model does not have, and more than can ever fit behind `behind`
        others.
        """
        tokens = fitting_tokens(self._models, model, tokens, behind=behind)
        positions, limit = behind + len(tokens), self._max_len[model]
        if positions > limit:
            raise CapacityError(
                f"{positions} tokens exceed the KV memory of {model!r}: {limit} positions; "
                f"give it more KV memory, or shorten the prompt"
            )
        return tokens

    def check_generates(self, handle: Handle, sampling: SamplingParams) -> None:
        if self._models[handle.model].head != "lm":
            raise CapabilityError(f"model {handle.model!r} has a reward head: it scores, it cannot generate")
        size = self._models[handle.model].vocab_size
        for name, ids in (
            ("logit_bias", sampling.logit_bias),
            ("allowed_tokens", sampling.allowed_tokens or ()),
        ):
            if ids and max(ids) >= size:
                raise UsageError(
                    f"{name} has token id {max(ids)}; the vocabulary of {handle.model!r} is 0 to {size - 1}"
                )

    def check_speculates(self, handle: Handle, speculate: Speculate | None) -> None:
        if not isinstance(speculate, DraftModel):
            return
        name, target = speculate.model, self._models[handle.model]
        self.check_model(name)
        draft = self._models[name]
        if draft.head != "lm" or name == handle.model or draft.vocab_size != target.vocab_size:
            raise CapabilityError(
                f"model {name!r} cannot draft for {handle.model!r}: it must be another language model "
                f"of the same vocabulary"
            )

    def check_scores(self, handle: Handle, params: ScoreParams) -> None:
        head, known, start = self._models[handle.model].head, handle.known, params.logprobs_from
        if params.reward_at and head != "reward":
            raise CapabilityError(f"model {handle.model!r} has no reward head")
        if start is not None and head != "lm":
            raise CapabilityError(f"model {handle.model!r} has a reward head and no token probabilities")
        if start is not None and not 1 <= start <= known:
            raise UsageError(f"logprobs_from is {start}; it must be 1 to {known}")
        for position in params.reward_at:
            if not 0 <= position < known:
                raise UsageError(f"no reward at position {position}: the sequence has 0 to {known - 1}")
