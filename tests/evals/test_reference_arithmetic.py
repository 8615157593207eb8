"""Arithmetic and calculator calls: generators, sentences, exact replay."""

import ast
import random

import pytest
from branchwise.evals.reference.tasks import arithmetic, arithmetic_replay, countdown, toolcall
from branchwise.evals.reference.tasks.arithmetic_terms import combinations, evaluate, parse_terms, write_terms
from branchwise.evals.reference.tasks.trace import OutOfRangeError, Split, split_completion
from branchwise.evals.reference.vocabulary import WAIT
from hypothesis import assume, given
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(arithmetic.COUNTS)


def python_value(expression: str) -> int:
    """The value by Python's own precedence."""
    return eval(compile(ast.parse(expression, mode="eval"), "<expression>", "eval"), {"__builtins__": {}})


@given(seeds, counts)
def test_generated_traces_replay_as_correct(seed: int, count: int) -> None:
    instance, trace = arithmetic.generate_trace(random.Random(seed), Split.TRAIN, count)
    result = arithmetic_replay.replay_completion(instance, trace.completion)
    assert result.correct
    assert result.restarts == trace.completion.count(WAIT)
    assert result.legal == (WAIT not in trace.completion)


@given(seeds, counts)
def test_values_follow_standard_precedence(seed: int, count: int) -> None:
    instance = arithmetic.generate(random.Random(seed), None, count)
    assert arithmetic.true_value(instance) == python_value(instance.expression)


@given(seeds, counts)
def test_every_legal_step_keeps_the_value(seed: int, count: int) -> None:
    instance = arithmetic.generate(random.Random(seed), None, count)
    for combination in combinations(instance.terms):
        assert evaluate(combination.remaining) == python_value(instance.expression)
        assert python_value(combination.operation) == combination.result
        assert parse_terms(write_terms(combination.remaining)) == combination.remaining


@given(seeds, counts, st.data())
def test_changing_one_digit_of_a_step_is_noticed(seed: int, count: int, data: st.DataObject) -> None:
    instance, trace = arithmetic.generate_trace(random.Random(seed), None, count)
    thinking, answer = split_completion(trace.completion)
    assume(thinking and WAIT not in thinking)
    place = data.draw(st.sampled_from([i for i, character in enumerate(thinking) if character.isdigit()]))
    digit = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != thinking[place]]))
    assert not arithmetic_replay.replay(
        instance, thinking[:place] + digit + thinking[place + 1 :], answer
    ).legal


@given(seeds, counts, st.data())
def test_changing_one_digit_of_the_answer_makes_replay_false(
    seed: int, count: int, data: st.DataObject
) -> None:
    instance = arithmetic.generate(random.Random(seed), None, count)
    answer = str(arithmetic.true_value(instance))
    place = data.draw(st.sampled_from([i for i, character in enumerate(answer) if character.isdigit()]))
    digit = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != answer[place]]))
    assert not arithmetic_replay.check_answer(instance, answer[:place] + digit + answer[place + 1 :])


def test_a_wrong_step_makes_the_state_unreachable_until_the_restart() -> None:
    instance = arithmetic.Instance("12+7*3-5")
    thinking = "7*3=22>12+22-5;12-5=7>7+22;<wait>12-5=7>7+7*3;"
    states = arithmetic_replay.step_states(instance, thinking)
    assert [arithmetic_replay.is_reachable(instance, state) for state in states] == [False, False, True]
    assert [state.legal for state in states] == [False, False, True]
    assert not any(state.always_legal for state in states)


@given(seeds)
def test_train_and_held_out_are_disjoint(seed: int) -> None:
    rng = random.Random(seed)
    assert not arithmetic.is_held_out(arithmetic.generate(rng, Split.TRAIN))
    assert arithmetic.is_held_out(arithmetic.generate(rng, Split.HELD_OUT))


@given(seeds, counts)
def test_sentences_are_recognised(seed: int, count: int) -> None:
    instance = arithmetic.generate(random.Random(seed), None, count)
    for text in (
        arithmetic.sentence(instance),
        f"What is {arithmetic.sentence(instance)}?",
        instance.expression,
    ):
        assert arithmetic.recognise(text) == instance


@pytest.mark.parametrize(
    "text",
    [
        "12 + 7*3 - 5",
        "What is 12 + 7*3 - 5?",
        "what's 12+7 * 3-5",
        "Compute 12 + 7*3 - 5.",
        "Calculate: 12 + 7*3 - 5 =",
        "12 + 7 \N{MULTIPLICATION SIGN} 3 \N{MINUS SIGN} 5 = ?",
    ],
)
def test_sentences_are_read_tolerantly(text: str) -> None:
    assert arithmetic.recognise(text) == arithmetic.Instance("12+7*3-5")


@pytest.mark.parametrize(
    "text", ["", "12", "Use 3 and 4 to make 7", "What is love?", "a+b", "-", "Compute pi"]
)
def test_other_text_is_not_recognised(text: str) -> None:
    assert arithmetic.recognise(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("12 + 35", "numbers from 1 to 30, got 35"),
        ("1+2+3+4+5+6+7", "2 to 6 numbers, got 7"),
        ("12/4 + 3", "joined by"),
        ("(1+2)*3", "joined by"),
        ("-3 + 4", "joined by"),
        ("30*30*30", "products of at most"),
        ("2*2*2*2", "products of at most"),
        ("1.5 + 2", "joined by"),
        ("1 2 + 3", "operator between"),
        ("3 +", "joined by"),
    ],
)
def test_expressions_outside_the_trained_range_are_refused(text: str, message: str) -> None:
    with pytest.raises(OutOfRangeError, match=message):
        arithmetic.recognise(text)


@given(seeds)
def test_calls_carry_the_expression_and_no_loss_on_the_result(seed: int) -> None:
    instance, trace = toolcall.generate_trace(random.Random(seed), Split.TRAIN)
    assert toolcall.recognise(toolcall.sentence(instance)) == instance
    assert [span.trained for span in trace.spans] == [True, False, True]
    value = python_value(instance.expression)
    assert toolcall.call_result(instance.expression) == value
    assert trace.completion == (
        f"<call>{instance.expression}</call><result>{value}</result></think>{value}<eos>"
    )


@pytest.mark.parametrize(
    "text", ["Use the calculator: 2000+1", "Use the calculator 3", "Use the calculator: 1/2"]
)
def test_calls_outside_the_range_are_refused(text: str) -> None:
    with pytest.raises(OutOfRangeError):
        toolcall.recognise(text)


def test_tasks_do_not_read_each_others_sentences() -> None:
    rng = random.Random(0)
    tasks = (countdown, arithmetic, toolcall)
    for task in tasks:
        text = task.sentence(task.generate(rng, None))
        assert [other for other in tasks if other.recognise(text) is not None] == [task]
