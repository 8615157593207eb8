"""Prompts that show a model earlier attempts at a problem and ask for a better one."""

from collections.abc import Sequence
from string import Template

from .problem import Attempt, Problem, Revisable

REFINE = Template(
    """$problem

Below are earlier attempts at this problem, the latest one last. They may be wrong.

$attempts

Look for mistakes in them, then solve the problem again and give a better answer. Reason step by step, and \
end with the final answer in the form that the problem asks for, or in \\boxed{} where it names none."""
)
"""One chain of revisions (Self-Refine, Madaan et al. 2023, arXiv 2303.17651; Snell et al. 2024, arXiv
2408.03314)."""

AGGREGATE = Template(
    """$problem

Below are several candidate solutions of this problem. Some of them may be incomplete or wrong.

$attempts

Combine what is right in them into one solution of high quality. Where they disagree, find out which one is \
right; where all of them are wrong, try another way. Reason step by step, and end with the final answer in \
the form that the problem asks for, or in \\boxed{} where it names none."""
)
"""One aggregate of a subset (RSA, Venkatraman et al. 2025, arXiv 2509.26626)."""


def revision_prompt(problem: Problem, attempts: Sequence[Attempt], template: Template) -> str:
    """The user message that asks for a better attempt: the task's own form, else the template filled in.

    A template has the fields `$problem` and `$attempts`. The problem's system message and earlier turns stand
    before the problem, since the new prompt is one user message.
    """
    if isinstance(problem.task, Revisable):
        return problem.task.revise(attempts)
    text = problem.with_turns
    if problem.system is not None:
        text = f"{problem.system}\n\n{text}"
    listed = "\n\n".join(_shown(number, attempt) for number, attempt in enumerate(attempts, start=1))
    return template.substitute(problem=text, attempts=listed)


def _shown(number: int, attempt: Attempt) -> str:
    """An attempt as the model reads it: what it concluded, and its thoughts only where it came to nothing."""
    text = attempt.conclusion.strip() or attempt.thinking.strip() or "(no text)"
    answer = "none" if attempt.answer is None else attempt.answer
    return f"Attempt {number}:\n{text}\nFinal answer of attempt {number}: {answer}"
