"""What was recorded of a model: exchangeable completions per problem, each with its cost."""

from collections.abc import Sequence

import msgspec

from ...engine.errors import UsageError


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded completion. `correct` as the recording graded it, None where it did not; `tokens` as it
    cost, None where it does not tell; `score` in [0, 1] from the recorded reward model; `complete`: it ran to
    its own end, or to a limit that holds for each alone, and was not cut by one that they share."""

    text: str
    answer: str | None
    correct: bool | None
    tokens: int | None = None
    score: float | None = None
    complete: bool = True


class RecordedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The completions of one problem. `prompt_tokens`: recorded for all of them together."""

    id: str
    problem: str
    completions: tuple[Completion, ...]
    level: str | None = None
    gold: str = ""
    prompt_tokens: int | None = None


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Problems with completions that were drawn independently from one distribution, so that any of them may
    stand for any other. `temperature`: that they were drawn at; None where it does not tell."""

    name: str
    problems: tuple[RecordedProblem, ...]
    temperature: float | None = None

    @property
    def tokens_known(self) -> bool:
        """Whether every completion has a cost."""
        return all(c.tokens is not None for problem in self.problems for c in problem.completions)

    @property
    def scored(self) -> bool:
        """Whether every completion has a score."""
        return all(c.score is not None for problem in self.problems for c in problem.completions)

    @property
    def most_samples(self) -> int:
        """Completions that every problem has."""
        return min((len(problem.completions) for problem in self.problems), default=0)

    def check_whole(self) -> None:
        """Raises `UsageError` where a completion was cut: what a shared limit cut is not exchangeable with
        what it let through."""
        for problem in self.problems:
            if cut := sum(not completion.complete for completion in problem.completions):
                raise UsageError(
                    f"recording {self.name}: {cut} of the {len(problem.completions)} completions of "
                    f"{problem.id} were cut before their end; estimates need samples that ran to theirs"
                )


def apportioned(total: int, lengths: Sequence[int]) -> list[int]:
    """A recorded total, split in proportion to lengths into whole parts that add up to it (largest
    remainders)."""
    weight = sum(lengths)
    if weight == 0:
        lengths, weight = [1] * len(lengths), len(lengths)
    parts = [total * length // weight for length in lengths]
    by_remainder = sorted(range(len(lengths)), key=lambda i: (-(total * lengths[i] % weight), i))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts
