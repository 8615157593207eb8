"""What happens in a search, as typed events: for live views, logs and streams."""

from typing import Any

import msgspec

from .solution import Reason


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=lambda name: name.lower()):
    """Base of all events. `problem_id` names the search, `tokens_spent` is the ledger at that moment."""

    problem_id: str
    tokens_spent: int


class BranchOpened(Event, frozen=True, kw_only=True):
    """A branch came to be: the root (parent None), or a child by fork."""

    branch: str
    parent: str | None


class StepDone(Event, frozen=True, kw_only=True):
    """A step was added to a branch; `text` is the step's own."""

    branch: str
    text: str
    stop: str
    tokens: int
    answer: str | None = None


class Scored(Event, frozen=True, kw_only=True):
    """A verifier scored a branch."""

    branch: str
    verifier: str
    value: float | None
    verified: bool | None


class Pruned(Event, frozen=True, kw_only=True):
    """A branch ended; its blocks are free."""

    branch: str
    reason: str


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
