"""What happens in a search, as typed events: for live views, logs and streams."""

from typing import Any

import msgspec

from .solution import Reason


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=lambda name: name.lower()):
    """Base of all events. `problem_id` names the search; `tokens_spent` and `flops_spent` are the ledger at
    that moment, `kv_owned` the policy's positions that live branches hold then, shared ones counted once."""

    problem_id: str
    tokens_spent: int
    flops_spent: int = 0
    kv_owned: int = 0


class BranchOpened(Event, frozen=True, kw_only=True):
    """A branch came to be: the root (parent None), or a child by fork. `start` is the length of its path
    then: the prompt of a root, the positions that a child shares with its parent. `text` is the prompt of a
    root."""

    branch: str
    parent: str | None
    start: int = 0
    text: str = ""


class StepDone(Event, frozen=True, kw_only=True):
    """A step was added to a branch; `text` is the step's own."""

    branch: str
    text: str
    stop: str
    tokens: int
    answer: str | None = None


class Wrote(Event, frozen=True, kw_only=True):
    """A branch gained text, as the tokens came; `phase` is "thinking" or "answer". Only where deltas are
    asked for.

    The text of a branch is what its parent had when it was forked, and then its own `Wrote`s in order, each
    `Cut` applied. Text that may still turn out to be a stop string, or is half of a character, comes later.
    """

    branch: str
    text: str
    phase: str


class Cut(Event, frozen=True, kw_only=True):
    """A branch dropped its text behind the first `kept` characters. Only where deltas are asked for."""

    branch: str
    kept: int


class Scored(Event, frozen=True, kw_only=True):
    """A verifier scored a branch; `detail` is its remark, such as why it could not. `steps` are the scores of
    all steps of its path, where the verifier tells them."""

    branch: str
    verifier: str
    value: float | None
    verified: bool | None
    detail: str = ""
    steps: tuple[float, ...] = ()


class Pruned(Event, frozen=True, kw_only=True):
    """A branch ended; its blocks are free."""

    branch: str
    reason: str


class ToolCalled(Event, frozen=True, kw_only=True):
    """A branch called a tool, and has its result; `failed` where that says what went wrong."""

    branch: str
    call: str
    result: str
    failed: bool


class Offered(Event, frozen=True, kw_only=True):
    """A branch was offered as an answer; `incumbent` is the branch that a stop would return now."""

    branch: str
    answer: str | None
    incumbent: str | None
    incumbent_answer: str | None


class Noted(Event, frozen=True, kw_only=True):
    """A strategy's or the orchestrator's remark."""

    text: str
    fields: dict[str, Any] = {}


class Ended(Event, frozen=True, kw_only=True):
    """The search ended."""

    reason: Reason
    answer: str | None
    verified: bool | None
