"""Tasks of programs: what is read as an answer, what votes together, and which models are asked."""

import pytest
from branchwise import Budget, solve
from branchwise.engine.errors import UsageError
from branchwise.evals.suites.base import Gold, Sample, problem_of, read_answer
from branchwise.evals.suites.tasks import ProgramTask
from branchwise.verifiers.answer_type import AnswerType

TASK = ProgramTask("Write f.", "f")
SAMPLE = Sample(id="p", problem="Write f.", gold=Gold(AnswerType.CODE, "{}"), meta={"entry_point": "f"})


def test_a_program_without_a_digit_is_an_answer_and_prose_in_an_open_block_is_none():
    block = "```python\ndef f(x):\n    return x\n```"
    assert read_answer(SAMPLE, f"Here it is.\n{block}\nIt works.") == "def f(x):\n    return x\n"
    assert read_answer(SAMPLE, "```python\ndef f(x):\n    return") is None
    assert read_answer(SAMPLE, "") is None


def test_equal_programs_vote_together_whatever_their_comments():
    key = TASK.canonical("def f(x):\n    return x + 1")
    assert key == TASK.canonical("def f( x ):\n\n    # adds one\n    return (x+1)\n")
    assert key != TASK.canonical("def f(x):\n    return 1 + x")
    assert TASK.canonical("    return x") == TASK.canonical("    return  x  # same")
    assert TASK.canonical("no program at all") is None


def test_a_program_gets_no_message_that_asks_for_a_box():
    problem = problem_of(SAMPLE)
    assert (problem.system, problem.task) == ("", TASK)


def test_models_that_read_their_own_tasks_only_refuse_others():
    with pytest.raises(UsageError, match=r"^problem 'Write f\.': the model 'reference' cannot read it"):
        solve(problem_of(SAMPLE), budget=Budget(tokens=8), seed=0)
