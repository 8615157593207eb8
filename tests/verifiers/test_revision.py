"""Prompts with earlier attempts, in words and in a task's own form."""

from branchwise.engine.text.tokenizer import Message
from branchwise.verifiers.problem import Attempt, Problem
from branchwise.verifiers.revision import AGGREGATE, REFINE, revision_prompt

WRONG = Attempt(thinking="I guess.", conclusion="It is \\boxed{3}.", answer="3")
EMPTY = Attempt(thinking="hm", conclusion="", answer=None)


def test_a_prompt_holds_the_problem_and_the_attempts_in_their_order() -> None:
    text = revision_prompt(Problem(text="What is $2 + 2$?"), [WRONG, EMPTY], REFINE)
    assert text.startswith("What is $2 + 2$?\n")
    first = text.index("Attempt 1:\nIt is \\boxed{3}.\nFinal answer of attempt 1: 3")
    second = text.index("Attempt 2:\nhm\nFinal answer of attempt 2: none")
    assert 0 < first < second < text.index("better answer")
    assert text.endswith("\\boxed{} where it names none.")
    assert "I guess" not in text


def test_earlier_turns_stand_before_the_problem() -> None:
    turns = (Message("user", "What is 2 + 2?"), Message("assistant", "4"))
    text = revision_prompt(Problem(text="And doubled?", system="Be brief.", messages=turns), [WRONG], REFINE)
    assert text.startswith("Be brief.\n\nuser: What is 2 + 2?\n\nassistant: 4\n\nAnd doubled?\n")


def test_a_system_message_stays_in_the_one_user_message() -> None:
    text = revision_prompt(Problem(text="2+2", system="Answer in words."), [WRONG], AGGREGATE)
    assert text.startswith("Answer in words.\n\n2+2\n")
    assert "several candidate solutions" in text
