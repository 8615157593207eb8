"""Exact replay of arithmetic. It recomputes the answer, so a verifier built on it is an oracle."""

import re

import msgspec

from ..vocabulary import STEP_MARK
from .arithmetic import Instance, true_value
from .arithmetic_terms import Terms, combinations, evaluate, parse_terms
from .trace import Replay, split_completion, split_restart, split_steps

_ANSWER = re.compile(r"-?\d{1,9}")


class State(msgspec.Struct, frozen=True):
    """Where a trace stands: the expression that it says remains (None where unreadable), and legality.

    `legal` is about the branch in progress since the last restart, `always_legal` about the whole trace.
    """

    remaining: Terms | None
    legal: bool = True
    always_legal: bool = True


def start(instance: Instance) -> State:
    """The state before the first step."""
    return State(instance.terms)


def advance(instance: Instance, state: State, step: str) -> State:
    """The state after one step's text, with or without its mark; a wait token restarts from the root."""
    restarted, text = split_restart(step)
    before = start(instance).remaining if restarted else state.remaining
    is_legal_step = before is not None and _is_legal(before, text)
    _, listed, rest = text.partition(">")
    return State(
        remaining=parse_terms(rest) if listed else None,
        legal=is_legal_step and (restarted or state.legal),
        always_legal=is_legal_step and state.always_legal,
    )


def _is_legal(before: Terms, text: str) -> bool:
    operation = text.partition("=")[0]
    return any(c.operation == operation and c.write() == text + STEP_MARK for c in combinations(before))


def step_states(instance: Instance, thinking: str) -> list[State]:
    """The state after each marked step of a thinking text."""
    states = []
    state = start(instance)
    for step in split_steps(thinking):
        state = advance(instance, state, step)
        states.append(state)
    return states


def is_reachable(instance: Instance, state: State) -> bool:
    """Whether the expression that remains still equals the problem's."""
    return state.remaining is not None and evaluate(state.remaining) == true_value(instance)


def check_answer(instance: Instance, answer: str) -> bool:
    """Whether the answer is the right number."""
    text = answer.strip()
    return _ANSWER.fullmatch(text) is not None and int(text) == true_value(instance)


def replay(instance: Instance, thinking: str, answer: str | None) -> Replay:
    """Replay a trace: is the answer right, and was every step legal? An answer of None is not correct."""
    states = step_states(instance, thinking)
    complete = not thinking or thinking.endswith(STEP_MARK)
    return Replay(
        correct=answer is not None and check_answer(instance, answer),
        legal=complete and all(state.always_legal for state in states[-1:]),
        steps=len(states),
        restarts=sum(split_restart(step)[0] for step in split_steps(thinking)),
    )


def replay_completion(instance: Instance, completion: str) -> Replay:
    """Replay a completion with its end of thinking and eos spelt out."""
    return replay(instance, *split_completion(completion))
