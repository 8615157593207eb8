"""Extraction: every form, and the public traps."""

import pytest
from branchwise.verifiers.answer_type import AnswerType
from branchwise.verifiers.extraction import closing_braces, extract_answer, extract_code
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"first \boxed{1}, no: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{5} wait \boxed{12", "5"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{} then 4", "4"),
        (r"so \boxed{\left\{1,2\right\}}.", r"\left\{1,2\right\}"),
        (r"<answer>4</answer> or <answer> 7 </answer>", "7"),
        ("#### 12\nQ: another\n#### 1,234", "1,234"),
        ("The answer is 12.", "12"),
        ("the answer is 3.5.", "3.5"),
        ("the final answer is: **42**", "42"),
        ("Final Answer: The final answer is $12$. I hope it is correct.", "$12"),
        ("The answer is $18. It costs $5", "$18"),
        ("answer is $18 + x$.", "18 + x"),
        (r"The answer is \(\frac12\)", r"\frac12"),
        ("The answer is (1, 2).", "(1, 2)"),
        ("The answer is 1, 2, 3.", "1, 2, 3"),
        ("The answer is x = 5.", "x = 5"),
        ("The answer is 7 apples", "7"),
        ("answer: (B)", "B"),
        ("the answer is B because it fits", "B"),
        ("The answer is A good idea", "A good idea"),
        ("I choose option C because of 3", "C"),
        ("(c)", "C"),
        ("so 5-3=2", "2"),
        ("x = 5 - 3", "3"),
        ("it is -3", "-3"),
        ("it is −3", "−3"),
        ("3 apples and 50%", "50%"),
        ("in all 1,234,567.89 km.", "1,234,567.89"),
        ("H2O", None),
        ("no idea", None),
        ("", None),
    ],
)
def test_forms(text: str, answer: str | None):
    assert extract_answer(text) == answer


@pytest.mark.pins("EleutherAI/lm-evaluation-harness#2552")
def test_a_box_inside_display_maths():
    assert extract_answer(r"so we get \[ \boxed{42} \]") == "42"


@pytest.mark.pins("EleutherAI/lm-evaluation-harness#3116")
def test_an_fbox_alone():
    assert extract_answer(r"\fbox{7}") == "7"


@pytest.mark.pins("EleutherAI/lm-evaluation-harness#3438")
def test_the_last_hashes_count_not_the_recited_example():
    assert extract_answer("Q: 1+1\n#### 2\nQ: 2+3\nso five\n#### 5") == "5"


@pytest.mark.pins("open-instruct#1764")
def test_a_box_without_braces_is_no_answer_and_an_open_one_is_an_abstention():
    assert extract_answer(r"I will put it in \boxed form. So \boxed{\frac{3}{4}}") == r"\frac{3}{4}"
    assert extract_answer(r"2 and 3 give \boxed{12") is None
    assert extract_answer(r"2 and 3 give <answer>12") is None


@pytest.mark.pins("optillm majority_voting")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("### Step 1: Setup\nWe add.\n### Step 2: Sum\nThe answer is 42.", "42"),
        ("A train leaves at 5 and arrives at 9, so it takes 4", "4"),
        ("Answer: 40? Let me check.\nAnswer: 42", "42"),
        ("### Step 1: Setup", "1"),
    ],
)
def test_headings_and_first_letters_are_no_answers(text: str, answer: str):
    assert extract_answer(text) == answer


@pytest.mark.pins("ThinkBooster answer tags")
@pytest.mark.pins("deepconf unclosed box")
@pytest.mark.pins("its_hub projection")
def test_of_several_boxes_the_last_whole_one_counts_with_its_nested_braces():
    assert extract_answer(r"<Answer>: \boxed{1} and \boxed{2}") == "2"
    assert extract_answer(r"\boxed{\frac{1}{2}} or \boxed{\sqrt{\frac{1}{4}}}") == r"\sqrt{\frac{1}{4}}"
    assert extract_answer(r"\boxed{12") is None
    assert extract_answer(r"\boxed{7} no: \boxed{12") == "7"


@pytest.mark.pins("PostTrainBench#44")
def test_a_number_is_taken_whole():
    assert extract_answer("ANSWER: 711") == "711"
    assert extract_answer("it must be 149") == "149"


@pytest.mark.parametrize(
    "text", ["\\boxed{" * 5000, "<answer>" * 5000, "answer is " * 5000, "$ " * 9000, "1," * 9000]
)
def test_a_model_that_repeats_itself_is_read_in_time(text: str):
    extract_answer(text)


@given(st.text())
def test_any_text_is_read(text: str):
    answer = extract_answer(text)
    assert answer is None or answer.strip()


@given(st.text(alphabet="ab{}\\ 1/"))
def test_a_balanced_box_comes_back_whole(inner: str):
    ends = closing_braces(f"{{{inner}}}")
    if ends.get(1) == len(inner) + 1 and inner.strip():
        assert extract_answer(rf"1, 2 \boxed{{{inner}}} and 3") == inner.strip()


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (AnswerType.INTEGER, "option C costs 12", "12"),
        (AnswerType.EXPRESSION, "option C costs 12", "C"),
        (AnswerType.CHOICE, "of (A) and (B), it is (B).", "B"),
        (AnswerType.CHOICE, "**C.**", "C"),
        (AnswerType.CHOICE, r"so \boxed{\text{(D)}}", r"\text{(D)}"),
        (AnswerType.CHOICE, "the result is 12", None),
        (AnswerType.STRING, "Paris", "Paris"),
        (AnswerType.STRING, "It was\nlong ago", None),
        (AnswerType.STRING, "Hm.\nThe answer is Paris.", "Paris"),
        (AnswerType.DECIMAL, "about 3.5 or 3.6 m", "3.6"),
    ],
)
def test_a_known_type_passes_over_what_cannot_be_of_it(kind: AnswerType, text: str, answer: str | None):
    assert extract_answer(text, kind) == answer


def test_code_is_the_last_closed_block_that_defines_the_function():
    block = "```python\ndef f(x):\n    return x\n```\n"
    usage = "For example:\n```\nf(1)\n```\n"
    assert extract_answer(block + usage, AnswerType.CODE) == "f(1)\n"
    assert extract_code(block + usage, "f") == "def f(x):\n    return x\n"
    assert extract_code(f"{block}Better:\n```python\ndef f(x):\n    return 2*x\n```", "f") == (
        "def f(x):\n    return 2*x\n"
    )
    assert extract_code(f"{block}Better:\n```python\ndef f(x):\n    ret", "f") is None
    assert extract_code("    return x + 1\n", "f") == "    return x + 1"
    assert extract_code("  \n", "f") is None
    assert extract_code('```py\ndef f():\n    return "```"\n```\n', "f") == 'def f():\n    return "```"\n'
