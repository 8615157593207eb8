"""Countdown: generators, sentences, reachability, exact replay."""

import itertools
import random

import pytest
from branchwise.evals.reference.tasks import countdown, countdown_replay
from branchwise.evals.reference.tasks.countdown_moves import (
    draw_play,
    expression,
    legal_moves,
    reachable_results,
)
from branchwise.evals.reference.tasks.trace import OutOfRangeError, Split, held_out, split_completion
from branchwise.evals.reference.vocabulary import EOS, THINK_END, WAIT
from hypothesis import assume, given
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)
counts = st.sampled_from(countdown.COUNTS)
number_lists = st.lists(st.integers(1, 20), min_size=2, max_size=4).map(
    lambda numbers: tuple(sorted(numbers))
)


@given(seeds, counts)
def test_generated_traces_replay_as_correct(seed: int, count: int) -> None:
    instance, trace = countdown.generate_trace(random.Random(seed), Split.TRAIN, count)
    result = countdown_replay.replay_completion(instance, trace.completion)
    assert result.correct
    assert result.restarts == trace.completion.count(WAIT)
    assert result.legal
    assert len(instance.numbers) == count
    assert 1 <= instance.target <= countdown.TARGET_MAX


@given(number_lists, seeds)
def test_the_expression_of_a_play_evaluates_to_its_result(numbers: tuple[int, ...], seed: int) -> None:
    moves = draw_play(random.Random(seed), numbers)
    instance = countdown.Instance(numbers, moves[-1].result)
    assert countdown_replay.check_answer(instance, expression(numbers, moves))


@given(number_lists, seeds)
def test_legal_play_ends_in_a_reachable_result(numbers: tuple[int, ...], seed: int) -> None:
    assert draw_play(random.Random(seed), numbers)[-1].result in reachable_results(numbers)


def test_reachable_results_of_two_numbers() -> None:
    assert reachable_results((3, 12)) == {15, 9, 36, 4}
    assert reachable_results((5, 5)) == {10, 0, 25, 1}
    assert {move.result for move in legal_moves((3, 12))} == {15, 9, 36, 4}


@given(seeds, counts, st.data())
def test_changing_one_digit_of_the_answer_makes_replay_false(
    seed: int, count: int, data: st.DataObject
) -> None:
    instance, trace = countdown.generate_trace(random.Random(seed), None, count)
    thinking, answer = split_completion(trace.completion)
    assert answer is not None
    places = [index for index, character in enumerate(answer) if character.isdigit()]
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != answer[place]]))
    assert not countdown_replay.replay(
        instance, thinking, answer[:place] + digit + answer[place + 1 :]
    ).correct


@given(seeds, counts, st.data())
def test_changing_one_digit_of_a_step_makes_the_trace_illegal(
    seed: int, count: int, data: st.DataObject
) -> None:
    instance, trace = countdown.generate_trace(random.Random(seed), None, count)
    thinking, answer = split_completion(trace.completion)
    places = [index for index, character in enumerate(thinking) if character.isdigit()]
    assume(places)
    place = data.draw(st.sampled_from(places))
    digit = data.draw(st.sampled_from([digit for digit in "0123456789" if digit != thinking[place]]))
    result = countdown_replay.replay(instance, thinking[:place] + digit + thinking[place + 1 :], answer)
    assert not result.legal
    assert result.correct


@given(seeds)
def test_a_failed_branch_is_legal_and_dead_and_the_restart_is_alive(seed: int) -> None:
    rng = random.Random(seed)
    instance, trace = next(
        drawn
        for _ in itertools.count()
        if WAIT in (drawn := countdown.generate_trace(rng, None))[1].completion
    )
    failed, waited, rest = trace.completion.partition(WAIT)
    dead = countdown_replay.step_states(instance, failed)[-1]
    assert dead.legal
    assert not countdown_replay.is_reachable(instance, dead)
    alive = countdown_replay.advance(instance, dead, waited + rest.partition(";")[0])
    assert countdown_replay.is_reachable(instance, alive)
    assert [span.trained for span in trace.spans] == [False, True, True]


def test_train_and_held_out_multisets_are_disjoint_and_a_fifth_is_held_out() -> None:
    rng = random.Random(0)
    train = {countdown.generate(rng, Split.TRAIN, 2).numbers for _ in range(400)}
    test = {countdown.generate(rng, Split.HELD_OUT, 2).numbers for _ in range(400)}
    assert not train & test
    share = sum(held_out(f"countdown:{a},{b}") for a in range(1, 101) for b in range(a, 101)) / 5050
    assert 0.17 < share < 0.23


@given(number_lists, st.integers(1, countdown.TARGET_MAX))
def test_sentences_are_recognised(numbers: tuple[int, ...], target: int) -> None:
    instance = countdown.Instance(numbers, target)
    assert countdown.recognise(countdown.sentence(instance)) == instance


@pytest.mark.parametrize(
    "text",
    [
        "Use 3, 7 and 12 to make 43",
        "use 12, 7 and 3 to make 43.",
        "Using 3 7 12, make 43!",
        "  USING 3, 7, and 12 TO GET 43 ",
        "Use 3,7,12 to reach 43",
    ],
)
def test_sentences_are_read_tolerantly(text: str) -> None:
    assert countdown.recognise(text) == countdown.Instance((3, 7, 12), 43)


@pytest.mark.parametrize("text", ["", "What is 3 + 4?", "Use the force to make peace", "Use 3 and 4", "12"])
def test_other_text_is_not_recognised(text: str) -> None:
    assert countdown.recognise(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Use 3 and 35 to make 38", "numbers from 1 to 20, got 35"),
        ("Use 0 and 3 to make 3", "numbers from 1 to 20, got 0"),
        ("Use 1, 2, 3, 4 and 5 to make 15", "2 to 4 numbers, got 5"),
        ("Use 3 to make 3", "2 to 4 numbers, got 1"),
        ("Use 3 and 4 to make 0", "target from 1 to 99, got 0"),
        ("Use 3 and 4 to make 100", "target from 1 to 99, got 100"),
        ("Use 3 and 4.5 to make 7", "whole numbers, not '4.5'"),
        ("Use 3 and 4 to make seven", "whole numbers, not 'seven'"),
    ],
)
def test_numbers_outside_the_trained_range_are_refused(text: str, message: str) -> None:
    with pytest.raises(OutOfRangeError, match=message):
        countdown.recognise(text)


@pytest.mark.parametrize(
    ("answer", "correct"),
    [
        ("12*3+7", True),
        ("(12 * 3) + 7", True),
        ("7+3*12", True),
        ("12*3+7+0", False),
        ("12*3", False),
        ("43", False),
        ("12*3+7;", False),
        ("12*3+7=43", False),
        ("12**3+7", False),
        ("12//3+7", False),
        ("-12*-3+7", False),
        ("(12*3+7", False),
        ("", False),
        ("12*3+7.0", False),
        ("True*43", False),
        ("7/(12*3-36)", False),
        ("(" * 150 + "1", False),
    ],
)
def test_answers_are_checked_strictly(answer: str, correct: bool) -> None:
    assert countdown_replay.check_answer(countdown.Instance((3, 7, 12), 43), answer) is correct


def test_an_inexact_quotient_may_stand_inside_an_answer() -> None:
    assert countdown_replay.check_answer(countdown.Instance((2, 3, 4), 6), "4/2*3")
    assert countdown_replay.check_answer(countdown.Instance((2, 3, 4), 6), "3/2*4")


@pytest.mark.parametrize(
    ("thinking", "legal"),
    [
        ("12*3=36>7,36;36+7=43>43;", True),
        ("3*12=36>7,36;", False),
        ("12*3=36>36,7;", True),
        ("12*3=36>7;", False),
        ("12*3=37>7,37;", False),
        ("12*4=48>7,48;", False),
        ("12/7=1>1,3;", False),
        ("12*3=36>7,36", False),
        ("12+7=19>3,19;<wait>12*3=36>7,36;36+7=43>43;", True),
        ("12+7=20>3,20;<wait>12*3=36>7,36;36+7=43>43;", False),
        ("", True),
    ],
)
def test_steps_are_replayed_by_the_rules(thinking: str, legal: bool) -> None:
    result = countdown_replay.replay(countdown.Instance((3, 7, 12), 43), thinking, "12*3+7")
    assert result.legal is legal
    assert result.correct


@pytest.mark.parametrize("completion", ["12*3=36>7,36;", f"{THINK_END}12*3+7", f"12*3+7{EOS}", ""])
def test_a_completion_without_an_end_has_no_answer(completion: str) -> None:
    assert not countdown_replay.replay_completion(countdown.Instance((3, 7, 12), 43), completion).correct
