"""When an extension ends."""

import enum

import msgspec


class Stop(enum.StrEnum):
    """Why an extension ended. `FAILED` never reaches a strategy as a value: `extend` raises."""

    MARK = "mark"
    THINK_END = "think_end"
    ANSWER = "answer"
    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"
    BUDGET = "budget"
    CONTEXT = "context"
    CANCELLED = "cancelled"


class Until(enum.StrEnum):
    """How far to extend: one step, the end of thinking, a closed final answer, or the end of the sequence."""

    STEP = "step"
    THINK = "think"
    ANSWER = "answer"
    END = "end"


class StopRule(msgspec.Struct, frozen=True, kw_only=True):
    """What ends an extension besides its length.

    `eos_ids` always end it (the id is kept). `strings` end it and are not kept. `until` names the text event that ends it
    (its mark is kept), found by the model's profile. `tokens_per_step` cuts steps by count instead (`step=tokens:N`);
    `mark` overrides the profile's step mark (`step=mark:...`).
    """

    until: Until = Until.END
    eos_ids: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    mark: str | None = None
    tokens_per_step: int | None = None
