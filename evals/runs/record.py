"""What is kept of one solved sample."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...reasoning.solution import CandidateRecord, Reason, Solution
from ..suites.base import Grade
from .plan import Cell, Key, Task
from .thinking import Thinking, thinking_of

TRUNCATED = "truncated"
_SCORE_OF = "score_"


class GradedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One offered candidate, and whether it was right: for pass@k and for the quality of verifiers.

    `correct` is None where the grader cannot tell. The rest is `reasoning.solution.CandidateRecord`'s;
    `tokens` is None where a recording does not tell.
    """

    id: str
    answer: str | None
    correct: bool | None
    score: float | None
    verified: bool | None
    tokens: int | None
    stop: str
    complete: bool
    mean_logprob: float | None = None


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """`reasoning.solution.Usage` with null for what the back end cannot know."""

    tokens: int | None = None
    flops: int | None = None
    prompt_tokens: int | None = None
    scored_tokens: int | None = None
    discarded_tokens: int | None = None
    engine: dict[str, Any] = {}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished sample. Equal for equal recipes, all but `usage.engine`.

    `correct` is None where the grader cannot tell; an abstention is wrong, and so is a sample that failed:
    `error` says why, and it is solved again when the run goes on. `censored`: a limit or the end of the
    recording cut the search before it had an answer, so it counts as wrong only with this share shown.
    `verifiers` scored something of it.
    """

    sample: str
    strategy: str
    budget: str
    seed: int
    level: str | None
    answer: str | None
    correct: bool | None
    grade_reason: str
    reason: str
    censored: bool
    score: float | None
    verified: bool | None
    text: str
    usage: Spent
    candidates: tuple[GradedCandidate, ...]
    notes: tuple[str, ...] = ()
    verifiers: tuple[str, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    error: str | None = None

    @property
    def cell(self) -> Cell:
        return Cell(strategy=self.strategy, budget=self.budget)

    @property
    def key(self) -> Key:
        return Key(self.sample, self.cell, self.seed)

    @property
    def costs(self) -> "Costs":
        """Positions by kind of work."""
        engine = self.usage.engine
        return Costs(
            prefill=engine.get("prefill_tokens"),
            decode=engine.get("decode_tokens"),
            draft=engine.get("draft_tokens"),
            verify=self.usage.scored_tokens,
            discarded=self.usage.discarded_tokens,
            cached=engine.get("cached_tokens"),
        )


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of one sample by kind of work; None where the back end does not know. `discarded` were
    decoded on branches that were not returned; `cached` were not computed at all."""

    prefill: int | None
    decode: int | None
    draft: int | None
    verify: int | None
    discarded: int | None
    cached: int | None


Grader = Callable[[str | None, str], Grade]
"""(answer, text) of one candidate -> its grade."""


def make_record(
    task: Task,
    solution: Solution,
    grade: Grader,
    node_link: Mapping[str, Any],
    *,
    spent: Spent | None = None,
    beyond: bool = False,
) -> Record:
    """The record of a solution with the node-link data of its graph. `beyond`: a recording ended before the
    search did. May block in `grade`."""
    final = _final(solution, grade, beyond=beyond)
    limited = solution.reason in (Reason.BUDGET, Reason.DEADLINE)
    texts = branch_texts(node_link)
    graded: dict[tuple[str | None, str], bool | None] = {}
    for candidate in solution.candidates:
        what = candidate.answer, texts.get(candidate.id, "")
        if what not in graded:
            graded[what] = grade(*what).correct
    tokens_known = spent is None or spent.tokens is not None
    return Record(
        sample=task.sample.id,
        strategy=task.cell.strategy,
        budget=task.cell.budget,
        seed=task.seed,
        level=task.sample.level,
        answer=solution.answer,
        correct=final.correct,
        grade_reason=final.reason,
        reason=str(solution.reason),
        censored=beyond or (limited and solution.answer is None),
        score=solution.score,
        verified=solution.verified,
        text=solution.text,
        usage=spent or spent_of(solution),
        candidates=tuple(
            _graded(
                candidate, graded[candidate.answer, texts.get(candidate.id, "")], tokens_known=tokens_known
            )
            for candidate in solution.candidates
        ),
        notes=solution.notes,
        verifiers=verifiers_in(node_link),
        thinking=thinking_of(node_link),
        error=solution.error,
    )


def _final(solution: Solution, grade: Grader, *, beyond: bool) -> Grade:
    """The grade of the sample. One that failed is wrong, whatever was offered before it did."""
    if beyond:
        return Grade(False, "the recording ended before the search")
    if solution.reason is Reason.FAILED:
        return Grade(False, "failed")
    return grade(solution.answer, solution.text)


def failed_record(task: Task, error: Exception) -> Record:
    """The record of a sample that raised."""
    return Record(
        sample=task.sample.id,
        strategy=task.cell.strategy,
        budget=task.cell.budget,
        seed=task.seed,
        level=task.sample.level,
        answer=None,
        correct=False,
        grade_reason="failed",
        reason=str(Reason.FAILED),
        censored=False,
        score=None,
        verified=None,
        text="",
        usage=Spent(),
        candidates=(),
        error=f"{type(error).__name__}: {error}",
    )


def spent_of(solution: Solution) -> Spent:
    """All that the ledger and the engine know."""
    return msgspec.convert(msgspec.structs.asdict(solution.usage), Spent)


def verifiers_in(node_link: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the verifiers that scored a node, from a graph's node-link data."""
    names = {name for node in node_link["nodes"] for name in node if name.startswith(_SCORE_OF)}
    return tuple(sorted(name.removeprefix(_SCORE_OF) for name in names))


def branch_texts(node_link: Mapping[str, Any]) -> dict[str, str]:
    """The text on the path to each branch's last node, prompt apart, from a graph's node-link data."""
    parents = {link["target"]: link["source"] for link in node_link["links"]}
    nodes = {node["id"]: node for node in node_link["nodes"]}
    last = {node["branch"]: name for name, node in nodes.items() if node["reason"] != TRUNCATED}
    texts = {}
    for branch, name in last.items():
        parts = []
        while name in parents:
            parts.append(nodes[name]["text"])
            name = parents[name]
        texts[branch] = "".join(reversed(parts))
    return texts


def _graded(candidate: CandidateRecord, correct: bool | None, *, tokens_known: bool) -> GradedCandidate:
    fields = msgspec.structs.asdict(candidate)
    if not tokens_known:
        fields["tokens"] = None
    return GradedCandidate(correct=correct, **fields)
