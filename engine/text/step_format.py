"""How the published step scorers read a problem and its solution, as text around each step.

Sources: the model cards of Qwen2.5-Math-PRM and Math-Shepherd, SkyworkAI/skywork-o1-prm-inference
(`io_utils`), RLHFlow/RLHF-Reward-Modeling (`math-rm/prm_evaluate`).
"""

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..errors import ModelLoadError
from .tokenizer import Message

if TYPE_CHECKING:
    from .tokenizer import HfTokenizer

Encode = Callable[[str], Sequence[int]]

_QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
_PROBLEM, _ANSWER, _STEP, _LAST = (f"\ufdd0{name}\ufdd0" for name in ("problem", "answer", "step", "last"))
"""Stand in for the texts while a chat template is cut into what lies around them."""


class Scorer(enum.StrEnum):
    """A published layout of step scorers: weights, labels, and the text around steps."""

    QWEN_MATH = "qwen2.5-math-prm"
    SKYWORK = "skywork-o1-prm"
    RLHFLOW = "rlhflow-prm"
    MATH_SHEPHERD = "math-shepherd"
    CLASSIFICATION = "classification"


class StepFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The text around a problem and around each step; the last id of a step is where its score is read.

    The prompt is `opening + problem + ending`. A step is `lead` (the first one) or `joint`, its number where
    the scorer was trained on numbered steps, its text and `trail`, all encoded together, and then `mark`
    encoded on its own. `anchor` is a text that stands before what is encoded and whose ids are dropped again:
    tokenizers of the SentencePiece kind put a space before the first word of a text. `strips`: blanks at both
    ends of problem and steps are dropped. `published`: the scorer was trained on this text and on no other;
    one that was not reads the ids of a policy with the same vocabulary as well.
    """

    opening: str
    ending: str
    lead: str = ""
    joint: str = ""
    trail: str = ""
    mark: str = ""
    anchor: str = ""
    numbered: bool = False
    strips: bool = True
    published: bool = True

    def prompt(self, problem: str, encode: Encode) -> tuple[int, ...]:
        """Ids of everything before the first step."""
        return tuple(encode(self.opening + self._bare(problem) + self.ending))

    def step(self, index: int, text: str, encode: Encode) -> tuple[int, ...]:
        """Ids of step `index` (from 0), at least one."""
        text = self._bare(text)
        number = f"Step {index + 1}: " if self.numbered and not text.startswith("Step ") else ""
        whole = (self.joint if index else self.lead) + number + text + self.trail
        ids = self._continued(whole, encode)
        if self.mark:
            ids = (*ids, *encode(self.mark))
        return ids or tuple(encode("\n"))

    def _continued(self, text: str, encode: Encode) -> tuple[int, ...]:
        """Ids of `text` as it stands behind other text."""
        if self.anchor:
            before, whole = tuple(encode(self.anchor)), tuple(encode(self.anchor + text))
            if whole[: len(before)] == before:
                return whole[len(before) :]
        return tuple(encode(text))

    def _bare(self, text: str) -> str:
        return text.strip() if self.strips else text


def step_format(scorer: Scorer, tokenizer: "HfTokenizer") -> StepFormat:
    """The format of a scorer with its own tokenizer and chat template; `ModelLoadError` where the template
    that it needs is missing."""
    return _FORMATS[scorer](tokenizer)


def label_ids(scorer: Scorer, tokenizer: "HfTokenizer") -> tuple[int, ...]:
    """Ids of the labels (bad, good) of a scorer that answers with a token; empty for the others."""
    if scorer is Scorer.RLHFLOW:
        return tokenizer.encode("-")[-1], tokenizer.encode("+")[-1]
    if scorer is Scorer.MATH_SHEPHERD:
        both = tokenizer.encode("+ -")
        return both[-1], both[0]
    return ()


def _qwen_math(tokenizer: "HfTokenizer") -> StepFormat:
    messages = [Message("system", _QWEN_SYSTEM), Message("user", _PROBLEM), Message("assistant", _ANSWER)]
    opening, ending, _ = _around(tokenizer, messages, _PROBLEM, _ANSWER)
    if tokenizer.token_id("<extra_0>") is None:
        raise ModelLoadError("the tokenizer of a Qwen2.5-Math-PRM has the token <extra_0>; this one has not")
    return StepFormat(opening=opening, ending=ending, mark="<extra_0>")


def _skywork(tokenizer: "HfTokenizer") -> StepFormat:
    return StepFormat(opening=tokenizer.special_tokens.get("bos_token", ""), ending="\n", mark="\n")


def _rlhflow(tokenizer: "HfTokenizer") -> StepFormat:
    """A step is a turn of the user, and "+" the answer that stands behind every step but the last."""
    texts = (_PROBLEM, _ANSWER, _STEP, _LAST)
    messages = [Message("user" if index % 2 == 0 else "assistant", text) for index, text in enumerate(texts)]
    opening, mark, joint, last, _ = _around(tokenizer, messages, *texts)
    if mark != last:
        raise ModelLoadError("the chat template of an RLHFlow PRM must open every turn in the same way")
    return StepFormat(opening=opening, ending="", lead=" ", joint="+" + joint, mark=mark)


def _math_shepherd(tokenizer: "HfTokenizer") -> StepFormat:
    opening = tokenizer.special_tokens.get("bos_token", "")
    return StepFormat(
        opening=opening, ending="", lead=" ", joint="\n", trail=" ки", anchor="x", numbered=True
    )


def _classification(tokenizer: "HfTokenizer") -> StepFormat:
    """A head on a chat model, without a format of its own: steps as they were written."""
    if tokenizer.template is None:
        opening, ending = tokenizer.special_tokens.get("bos_token", ""), ""
    else:
        opening, ending = _around(tokenizer, [Message("user", _PROBLEM)], _PROBLEM)
    return StepFormat(opening=opening, ending=ending, strips=False, published=False)


_FORMATS: dict[Scorer, Callable[["HfTokenizer"], StepFormat]] = {
    Scorer.QWEN_MATH: _qwen_math,
    Scorer.SKYWORK: _skywork,
    Scorer.RLHFLOW: _rlhflow,
    Scorer.MATH_SHEPHERD: _math_shepherd,
    Scorer.CLASSIFICATION: _classification,
}


def _around(tokenizer: "HfTokenizer", messages: Sequence[Message], *texts: str) -> list[str]:
    """What the chat template puts before, between and behind the `texts` of the messages."""
    if tokenizer.template is None:
        raise ModelLoadError("this step scorer reads its chat template, and its folder has none")
    parts, rest = [], tokenizer.render(messages)
    for text in texts:
        before, found, rest = rest.partition(text)
        if not found or text in rest:
            raise ModelLoadError("the chat template of a step scorer must show each message once, unchanged")
        parts.append(before)
    return [*parts, rest]
