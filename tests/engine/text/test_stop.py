"""Where extensions end, token by token, against the text they make."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, StopChecker, StopRule, Until, mark_id
from branchwise.engine.text.tokenizer import HfTokenizer
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import save_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

REFERENCE = Path(__file__).parents[3] / "evals" / "reference" / "models" / "policy"
THINKER = ModelProfile(think_start="<think>", think_end="</think>", stop_ids=frozenset({256}))
PLAIN = ModelProfile(stop_ids=frozenset({256}))
EOS = frozenset({256})


@pytest.fixture(scope="module")
def chars(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    """A token a byte, and special tokens."""
    folder = tmp_path_factory.mktemp("bytes")
    save_tokenizer(folder)
    return HfTokenizer.open(folder)


@pytest.fixture(scope="module")
def words() -> HfTokenizer:
    """Bytes, and merged pieces that hold a mark or a stop string in their middle."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("Ċ", "Ċ"),
        ("o", "r"),
        ("or", "d"),
        (".", "Ċ"),
        (".", "ĊĊ"),
        ("S", "T"),
        ("x", "ST"),
        ("xST", "O"),
    ]
    pieces += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return HfTokenizer(tokenizer, {}, None, "test")


def _run(
    tokenizer: HfTokenizer,
    rule: StopRule,
    profile: ModelProfile,
    text: str | Sequence[int],
    context: str = "",
) -> tuple[Stop | None, str]:
    """The stop and the kept text."""
    checker = StopChecker(rule, profile, tokenizer, tokenizer.encode(context))
    ids = tokenizer.encode(text) if isinstance(text, str) else list(text)
    for count, token in enumerate(ids, start=1):
        stop = checker.push(token)
        if stop is not None:
            return stop, tokenizer.decode([*ids[:count][: checker.kept()], *checker.tail()])
    return None, tokenizer.decode(ids)


def test_eos_always_ends_and_is_kept(chars: HfTokenizer) -> None:
    for until in Until:
        assert _run(chars, StopRule(until=until, eos_ids=EOS), THINKER, "ab<|endoftext|>c") == (
            Stop.EOS,
            "ab<|endoftext|>",
        )
    assert _run(chars, StopRule(), PLAIN, "ab<|endoftext|>c")[0] is None


STEP = StopRule(until=Until.STEP, eos_ids=EOS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("one\n \t\ntwo", "one\n \t\n"),
        ("\n\none\n\ntwo", "\n\none\n\n"),
        ("one\ntwo\n\n", "one\ntwo\n\n"),
        ("a ```py\nx\n\ny``` b\n\nc", "a ```py\nx\n\ny``` b\n\n"),
        ("a $$x\n\ny$$ b\n\nc", "a $$x\n\ny$$ b\n\n"),
        ("a \\[x\n\ny\\] b\n\nc", "a \\[x\n\ny\\] b\n\n"),
        ("cost $5 and $6\n\nc", "cost $5 and $6\n\n"),
    ],
)
def test_a_blank_line_ends_a_step_outside_code_and_maths(chars: HfTokenizer, text: str, kept: str) -> None:
    assert _run(chars, STEP, PLAIN, text) == (Stop.MARK, kept)


@pytest.mark.parametrize("opened", ["see ```py\nx", "let $$x", "let \\[x"])
def test_text_state_comes_from_the_context(chars: HfTokenizer, opened: str) -> None:
    assert _run(chars, STEP, PLAIN, "a\n\nb", opened)[0] is None
    close = {"`": "```", "$": "$$", "\\": "\\]"}[opened[4]]
    assert _run(chars, STEP, PLAIN, f"a\n\n{close}b\n\n", opened) == (Stop.MARK, f"a\n\n{close}b\n\n")


def test_a_fence_split_between_context_and_step(chars: HfTokenizer) -> None:
    assert _run(chars, STEP, PLAIN, "`\nx\n\n", "code ``")[0] is None


def test_the_token_that_holds_the_mark_belongs_to_the_step(words: HfTokenizer) -> None:
    assert _run(words, STEP, PLAIN, "word.\n\nword") == (Stop.MARK, "word.\n\n")
    rule = StopRule(until=Until.STEP, mark="S")
    assert _run(words, rule, PLAIN, "a xSTO b") == (Stop.MARK, "a xSTO")


def test_the_end_of_thinking_ends_a_step(chars: HfTokenizer) -> None:
    assert _run(chars, STEP, THINKER, "ab</think>c") == (Stop.THINK_END, "ab</think>")
    marked = ModelProfile(step_mark=";", think_end="</think>")
    assert _run(chars, STEP, marked, "ab</think>c") == (Stop.THINK_END, "ab</think>")


def test_the_profile_and_the_rule_name_other_marks(chars: HfTokenizer) -> None:
    profile = ModelProfile(step_mark=";")
    assert _run(chars, STEP, profile, "a\n\nb;c") == (Stop.MARK, "a\n\nb;")
    rule = StopRule(until=Until.STEP, mark="END")
    assert _run(chars, rule, profile, "a;b EN END c") == (Stop.MARK, "a;b EN END")


def test_steps_by_count(chars: HfTokenizer) -> None:
    rule = StopRule(until=Until.STEP, tokens_per_step=3)
    assert _run(chars, rule, PLAIN, "a\n\nbcd") == (Stop.MARK, "a\n\n")
    assert _run(chars, rule, THINKER, "a</think>b") == (Stop.THINK_END, "a</think>")


def test_until_think(chars: HfTokenizer) -> None:
    rule = StopRule(until=Until.THINK, eos_ids=EOS)
    assert _run(chars, rule, THINKER, "a\n\n\\boxed{1}</think>b") == (
        Stop.THINK_END,
        "a\n\n\\boxed{1}</think>",
    )
    # Thinking is over already, or there is none: only the end ends it.
    assert _run(chars, rule, THINKER, "a<|endoftext|>", "<think>x</think>")[0] is Stop.EOS
    assert _run(chars, rule, PLAIN, "a</think>b<|endoftext|>")[0] is Stop.EOS


def test_a_second_thinking_block_counts(chars: HfTokenizer) -> None:
    rule = StopRule(until=Until.THINK)
    context = "<think>x</think>answer<|im_end|><think>"
    assert _run(chars, rule, THINKER, "a</think>b", context) == (Stop.THINK_END, "a</think>")


def test_a_think_end_of_several_tokens(chars: HfTokenizer) -> None:
    profile = ModelProfile(think_end="### Answer")
    assert _run(chars, STEP, profile, "a ### Answer b") == (Stop.THINK_END, "a ### Answer")
    rule = StopRule(until=Until.ANSWER)
    assert _run(chars, rule, profile, "\\boxed{1} ### Answer \\boxed{2} c") == (
        Stop.ANSWER,
        "\\boxed{1} ### Answer \\boxed{2}",
    )
    assert _run(chars, rule, profile, "\\boxed{2} c", "x ### Answer ") == (Stop.ANSWER, "\\boxed{2}")


ANSWER = StopRule(until=Until.ANSWER, eos_ids=EOS)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("so \\boxed{4} x", "so \\boxed{4}"),
        ("so \\boxed{\\frac{1}{2}} x", "so \\boxed{\\frac{1}{2}}"),
        ("so \\boxed{\\{1, 2\\}} x", "so \\boxed{\\{1, 2\\}}"),
        ("so \\boxed {a{b}c} x", "so \\boxed {a{b}c}"),
        ("{ } \\text{no} \\boxed{y}", "{ } \\text{no} \\boxed{y}"),
        ("$$\\boxed{3}$$", "$$\\boxed{3}"),
        ("\\[\\boxed{\n\n3}\\]", "\\[\\boxed{\n\n3}"),
    ],
)
def test_a_closed_box_ends_the_answer(chars: HfTokenizer, text: str, kept: str) -> None:
    assert _run(chars, ANSWER, PLAIN, text) == (Stop.ANSWER, kept)
    assert _run(chars, ANSWER, THINKER, text, "<think>t</think>") == (Stop.ANSWER, kept)


def test_a_box_inside_thinking_is_no_answer(chars: HfTokenizer) -> None:
    assert _run(chars, ANSWER, THINKER, "\\boxed{1} x")[0] is None
    assert _run(chars, ANSWER, THINKER, "\\boxed{1 </think> } \\boxed{2} x") == (
        Stop.ANSWER,
        "\\boxed{1 </think> } \\boxed{2}",
    )


def test_a_box_that_the_context_opened(chars: HfTokenizer) -> None:
    assert _run(chars, ANSWER, PLAIN, "1}2} x", "Final Answer: \\boxed{{") == (Stop.ANSWER, "1}2}")
    assert _run(chars, ANSWER, PLAIN, "ed{7} x", "\\box") == (Stop.ANSWER, "ed{7}")
    # A closed one, in the prompt for instance, is no answer.
    assert _run(chars, ANSWER, PLAIN, "a b", "use \\boxed{}")[0] is None


def test_models_whose_answers_end_with_the_sequence(chars: HfTokenizer) -> None:
    profile = ModelProfile(think_end="</think>", final_answer="eos")
    assert _run(chars, ANSWER, profile, "</think>\\boxed{1}<|endoftext|>")[0] is Stop.EOS


def test_a_stop_string_is_not_kept(chars: HfTokenizer) -> None:
    rule = StopRule(strings=("STOP", "HALT"), eos_ids=EOS)
    assert _run(chars, rule, PLAIN, "ab STOP c") == (Stop.STOP, "ab ")
    assert _run(chars, rule, PLAIN, "SToSTHALT") == (Stop.STOP, "SToST")
    assert _run(chars, rule, PLAIN, "STOP") == (Stop.STOP, "")
    # It must stand in the new text alone.
    assert _run(chars, rule, PLAIN, "OP x", "ST")[0] is None


def test_the_text_before_a_stop_string_inside_a_token_stays(words: HfTokenizer) -> None:
    ids = words.encode("word xSTOP")
    assert [words.decode([token]) for token in ids][-2:] == ["xSTO", "P"]
    checker = StopChecker(StopRule(strings=("STOP",)), PLAIN, words, [])
    assert [checker.push(token) for token in ids][-1] is Stop.STOP
    assert words.decode([*ids[: checker.kept()], *checker.tail()]) == "word x"
    assert checker.kept() == len(ids) - 2
    assert list(checker.tail()) == words.encode("x")


def test_a_stop_string_comes_before_a_mark(chars: HfTokenizer) -> None:
    rule = StopRule(until=Until.STEP, strings=("b;",), mark=";")
    assert _run(chars, rule, PLAIN, "ab;c") == (Stop.STOP, "a")


@given(
    text=st.text(alphabet="aé😀S.T \n", max_size=25), stop=st.sampled_from(["S.", "😀", "é ", "\n\n", "aS"])
)
def test_stop_strings_agree_with_the_plain_text(chars: HfTokenizer, text: str, stop: str) -> None:
    found, kept = _run(chars, StopRule(strings=(stop,)), PLAIN, text)
    where = text.find(stop)
    assert (found, kept) == ((None, text) if where < 0 else (Stop.STOP, text[:where]))


@pytest.mark.parametrize("until", Until)
def test_the_reference_is_decided_on_ids_alone(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = HfTokenizer.open(REFERENCE)
    profile = ModelProfile(step_mark=";", think_end="</think>", final_answer="eos", stop_ids=frozenset({2}))
    ids = tokenizer.encode("3+7=10>10 12;12;</think>12<eos>")
    mark_id(tokenizer, ";")  # looks at the vocabulary, once
    monkeypatch.setattr(HfTokenizer, "decode", None)
    monkeypatch.setattr("branchwise.engine.text.stop.Detokenizer", None)
    checker = StopChecker(StopRule(until=until, eos_ids=frozenset({2})), profile, tokenizer, ids[:3])
    stops = [checker.push(token) for token in ids[3:]]
    semicolon = tokenizer.token_id(";")
    first = next((stop, ids[3 + i]) for i, stop in enumerate(stops) if stop is not None)
    expected = {
        Until.STEP: (Stop.MARK, semicolon),
        Until.THINK: (Stop.THINK_END, tokenizer.token_id("</think>")),
        Until.ANSWER: (Stop.EOS, 2),
        Until.END: (Stop.EOS, 2),
    }
    assert first == expected[until]


def test_marks_that_other_tokens_hold_are_found_in_the_text(words: HfTokenizer) -> None:
    assert mark_id(words, "S") is None
    assert mark_id(words, "q") == words.token_id("q")
