"""From the prompts of a completion to problems: texts and token ids that the model goes on from."""

from collections.abc import Sequence
from typing import NamedTuple

from ..engine.protocol import ModelInfo
from ..reasoning.prompting import document
from ..verifiers.problem import Problem
from .errors import bad_request
from .schema import MOST_CHOICES

Given = str | int | list[int]


class ReadPrompt(NamedTuple):
    """`text` is what the client gave, or what its ids stand for."""

    problem: Problem
    text: str


class Prompts:
    """Reads prompts for the served model. `sentences`: it reads the sentences of its tasks alone, so that a
    text is put to it in their form, and only ids are taken as they are."""

    def __init__(self, info: ModelInfo, *, sentences: bool) -> None:
        self._info = info
        self._sentences = sentences

    def read(self, prompt: str | Sequence[Given]) -> list[ReadPrompt]:
        """The problem of each prompt. Raises `ApiError`."""
        if isinstance(prompt, str):
            return [self._text(prompt)]
        if all(isinstance(one, int) for one in prompt):
            return [self._ids([one for one in prompt if isinstance(one, int)])]
        if len(prompt) > MOST_CHOICES:
            raise bad_request(f"prompt: {len(prompt)} prompts; give at most {MOST_CHOICES}", param="prompt")
        texts = [self._text(one) for one in prompt if isinstance(one, str)]
        lists = [self._ids(one) for one in prompt if isinstance(one, list)]
        if len(prompt) not in (len(texts), len(lists)):
            raise bad_request(
                "prompt: give a text, token ids, a list of texts, or a list of lists of token ids",
                param="prompt",
            )
        return texts or lists

    def _text(self, text: str) -> ReadPrompt:
        if not text:
            raise bad_request("prompt: it is empty; give a text to go on from", param="prompt")
        ids = None if self._sentences else document(text, self._info)
        return ReadPrompt(Problem(text=text, prompt=ids), text)

    def _ids(self, ids: Sequence[int]) -> ReadPrompt:
        if not ids:
            raise bad_request("prompt: a list of token ids is empty; give at least one", param="prompt")
        size = self._info.vocab_size
        for token in ids:
            if not 0 <= token < size:
                raise bad_request(
                    f"prompt: {token} is no token id of this model; give ids from 0 to {size - 1}",
                    param="prompt",
                )
        text = self._info.tokenizer.decode(ids)
        return ReadPrompt(Problem(text=text, prompt=tuple(ids)), text)
