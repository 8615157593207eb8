"""Calls and results as the templates of model families have them."""

import json
from pathlib import Path

import anyio
import pytest
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.profile import ModelProfile
from branchwise.engine.text.stop import Stop, Until
from branchwise.engine.text.tokenizer import HfTokenizer, Message
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.tools.box import with_system
from branchwise.reasoning.tools.calculator import CALCULATOR
from branchwise.reasoning.tools.call import canonical_calls
from branchwise.reasoning.tools.formats import InText, Turns
from support.templates import HERMES, LLAMA
from support.tiny import save_model, save_tokenizer

ENDS = frozenset({256, 258})


def turns(tmp_path: Path, template: str, *, hermes: bool) -> Turns:
    save_tokenizer(tmp_path, chat_template=template)
    return Turns(HfTokenizer.open(tmp_path), ENDS, hermes=hermes)


def test_hermes_calls_are_read_and_answered_by_the_template(tmp_path: Path) -> None:
    format = turns(tmp_path, HERMES, hermes=True)
    turn = (
        'Let me see.\n<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "2+2"}}\n</tool_call>'
    )
    calls = format.read(turn, turn, Stop.EOS, [CALCULATOR])
    assert canonical_calls(calls) == 'calculator({"expression":"1+1"})\ncalculator({"expression":"2+2"})'
    assert format.read(turn, turn, Stop.BUDGET, [CALCULATOR]) == ()
    assert format.said(turn) == "Let me see."
    assert format.answer(turn + "<|im_end|>", ["2", "4"], think=None) == (
        "\n<|im_start|>user\n<tool_response>\n2\n</tool_response>\n<tool_response>\n4\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_hermes_template_is_told_of_the_tools(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, chat_template=HERMES)
    tokenizer = HfTokenizer.open(tmp_path)
    text = tokenizer.decode(tokenizer.chat([Message("user", "hi")], tools=[CALCULATOR.as_openai()]))
    assert '"name": "calculator"' in text


def test_a_broken_hermes_call_is_a_call_with_a_fault(tmp_path: Path) -> None:
    format = turns(tmp_path, HERMES, hermes=True)
    turn = '<tool_call>{"name": "calc'
    (call,) = format.read(turn, turn, Stop.EOS, [CALCULATOR])
    assert call.fault is not None


@pytest.mark.parametrize(
    ("turn", "called"),
    [
        ('{"name": "calculator", "parameters": {"expression": "1+1"}}', True),
        ('<|python_tag|>{"name": "nothing", "parameters": {}}', True),
        ('{"name": "Ada", "age": 36}', False),
        ("It is 2.", False),
    ],
)
def test_llama_calls_are_the_whole_turn(tmp_path: Path, turn: str, called: bool) -> None:
    format = turns(tmp_path, LLAMA, hermes=False)
    assert bool(format.read(turn, turn, Stop.EOS, [CALCULATOR])) is called


def test_llama_results_are_quoted_where_the_template_quotes_them(tmp_path: Path) -> None:
    format = turns(tmp_path, LLAMA, hermes=False)
    text = format.answer("", ['say "2"'], think=None)
    assert text == '<|im_start|>ipython\n\n"say \\"2\\""<|im_end|><|im_start|>assistant\n\n'


def test_calls_in_the_text_are_read_at_its_end_only() -> None:
    format = InText()
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+1"}}'
    tools = [CALCULATOR]
    assert format.read(f"a {call}</tool_call>", "", Stop.EOS, tools)
    assert format.read(f"a {call}", "", Stop.STOP, tools)
    assert not format.read(f"a {call}", "", Stop.EOS, tools)
    assert not format.read(f"a {call}</tool_call> b", "", Stop.EOS, tools)
    assert not format.read(f"a {call}</tool_call> b", "", Stop.STOP, tools)
    (bare,) = format.read("<tool_call> 1+1 </tool_call>", "", Stop.EOS, tools)
    assert bare.canonical == 'calculator({"expression":"1+1"})'


def test_a_system_message_is_kept_beside_the_tools() -> None:
    user = Message("user", "hi")
    assert with_system([user], "T") == [Message("system", "T"), user]
    assert with_system([Message("system", "S"), user], "T") == [Message("system", "S\n\nT"), user]


def test_markers_of_a_profile_are_its_format() -> None:
    from types import SimpleNamespace

    from branchwise.reasoning.tools.formats import find_format

    profile = ModelProfile(call="<c>", call_end="</c>", result="<r>", result_end="</r>")
    found = find_format(SimpleNamespace(profile=profile, tokenizer=None))  # pyright: ignore[reportArgumentType]
    assert found.answer("<c>1</c>", ["2"], think=None) == "<r>2</r>"


@pytest.mark.parametrize("think", [False, None])
def test_a_result_opens_another_turn_with_thinking_of_its_own(tmp_path: Path, think: bool | None) -> None:
    save_model(tmp_path, "Qwen3", max_position_embeddings=1024)
    save_tokenizer(tmp_path, chat_template=HERMES)
    markers = {"think_start": "<think>", "think_end": "</think>"}
    (tmp_path / "branchwise.json").write_text(json.dumps({"profile": markers}))
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call>'
    opened_turn = (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )

    async def main() -> None:
        async with (
            Reasoner.open(str(tmp_path), threads=1) as reasoner,
            reasoner.session("hi", Budget(tokens=900), tools=[CALCULATOR], think=think, seed=1) as root,
        ):
            (branch,) = root.fork(1)
            thought = "" if think is False else "Hm.</think>"
            await branch.append(thought)
            await branch.append(call)
            before = len(branch.tokens)
            only_end = SamplingParams(allowed_tokens=(258,))
            step = await branch.extend(Until.ANSWER, sampling=only_end)
            assert branch.text == f"{thought}{call}{opened_turn}<|im_end|>"
            assert step.stop is Stop.EOS
            assert step.generated == len(step.tokens)
            assert len(step.logprobs) == 2
            assert root.budget.tokens_spent == len(branch.tokens)
            assert branch.thinking is (think is None)
            assert branch.conclusion == ""
            branch.truncate(before)
            assert branch.text == thought + call
            assert branch.conclusion == call
            assert not branch.thinking

    anyio.run(main)
