"""Tokens out of the chunks of different servers."""

import pytest
from branchwise.engine.remote.reading import Arrived, end_id, read_tokens
from branchwise.engine.remote.wire import Choice, ChoiceLogprobs, error_text
from branchwise.engine.sampling.detail import Alternatives
from support.scripted import CharTokenizer

CHARS = CharTokenizer()


def test_ids_count_before_text():
    told = ChoiceLogprobs(
        tokens=("token_id:5", "token_id:6"),
        token_logprobs=(-1.0, -2.0),
        top_logprobs=({"token_id:7": -0.5, "token_id:5": -1.0}, None),
    )
    best = Alternatives((7, 5), (-0.5, -1.0))
    expected = [Arrived(5, -1.0, best), Arrived(6, -2.0)]
    assert read_tokens(Choice(text="??", token_ids=(5, 6), logprobs=told), CHARS) == expected
    assert read_tokens(Choice(text="??", logprobs=told), CHARS) == expected


def test_text_is_cut_by_the_tokenizer_and_a_piece_keeps_its_logprob():
    told = ChoiceLogprobs(tokens=("ab", "c"), token_logprobs=(-1.0, -2.0))
    read = read_tokens(Choice(text="abc", logprobs=told), CHARS)
    assert [(chr(one.token), one.logprob) for one in read] == [("a", -1.0), ("b", 0.0), ("c", -2.0)]


def test_text_without_logprobs_has_none():
    read = read_tokens(Choice(text="ab"), CHARS)
    assert read == [Arrived(ord("a")), Arrived(ord("b"))]


def test_pieces_that_do_not_join_to_the_text_are_not_trusted():
    told = ChoiceLogprobs(tokens=("a\ufffd",), token_logprobs=(-1.0,))
    assert [one.logprob for one in read_tokens(Choice(text="ab", logprobs=told), CHARS)] == [None, None]


def test_an_end_that_is_left_out_of_the_text_is_read_from_the_logprobs():
    told = ChoiceLogprobs(tokens=("a", "$"), token_logprobs=(-1.0, -2.0))
    read = read_tokens(Choice(text="a", finish_reason="stop", logprobs=told), CHARS)
    assert [(chr(one.token), one.logprob) for one in read] == [("a", -1.0), ("$", -2.0)]


def test_alternatives_that_are_not_one_for_each_token_and_names_that_are_no_ids_are_not_read():
    told = ChoiceLogprobs(tokens=("a", "b"), token_logprobs=(-1.0, -2.0), top_logprobs=({"a": -1.0},))
    read = read_tokens(Choice(text="ab", token_ids=(97, 98), logprobs=told), CHARS)
    assert read == [Arrived(97, -1.0), Arrived(98, -2.0)]
    named = ChoiceLogprobs(tokens=("token_id:seven",), token_logprobs=(-1.0,))
    assert read_tokens(Choice(logprobs=named), CHARS) == [Arrived(-1, -1.0)]


def test_the_end_is_the_one_that_is_told_or_the_lowest_stop():
    assert end_id(9, CHARS, frozenset({9, 4})) == 9
    assert end_id(7, CHARS, frozenset({9, 4})) == 4
    assert end_id("x", CHARS, frozenset()) is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too\\nlong", "code": 400}}', "too long"),
        (b'{"error": "busy"}', "busy"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>502</html>", "<html>502</html>"),
    ],
)
def test_errors_of_any_server_are_told_in_one_line(body: bytes, said: str):
    assert error_text(body) == said
