"""What is particular to a model's text: where thinking ends, what marks a step, which ids stop it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ModelLoadError

if TYPE_CHECKING:
    from .tokenizer import HfTokenizer

_THINKING = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""Markers of the families that think: Qwen3, QwQ and R1 distillations; Magistral."""

_TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "</s>",
)
"""Tokens that end a turn in the chat templates of the supported families."""


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Markers of one model, as text and as ids of its tokenizer.

    `step_mark` is a literal string that ends a step (None: a blank line outside code fences and display
    maths). `think_start`, `think_end` are None for models without a thinking phase. `stop_ids` is the union
    of the generation config's, the tokenizer's and the chat template's end ids. `wait` is the text that asks
    for more thinking. `final_answer` names the closed form that ends an answer: "eos" (only the end of the
    sequence), or "boxed". `call`, `call_end`, `result`, `result_end` enclose a tool call and its result in
    models that were taught them.
    """

    step_mark: str | None = None
    think_start: str | None = None
    think_end: str | None = None
    wait: str = "Wait"
    final_answer: str = "boxed"
    stop_ids: frozenset[int] = frozenset()
    call: str | None = None
    call_end: str | None = None
    result: str | None = None
    result_end: str | None = None

    @property
    def thinks(self) -> bool:
        """Whether an answer phase follows a thinking phase."""
        return self.think_end is not None


class ProfileOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `profile` object of a folder's `branchwise.json`: fields of `ModelProfile`; `stop` lists end tokens
    as text.

    A folder that describes its own text ends its answers with the sequence, unless it names another form.
    """

    step_mark: str | None = None
    think_start: str | None = None
    think_end: str | None = None
    wait: str = "Wait"
    final_answer: str = "eos"
    stop: tuple[str, ...] = ()
    call: str | None = None
    call_end: str | None = None
    result: str | None = None
    result_end: str | None = None


class FolderNotes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder's `branchwise.json`. `deterministic` asks for the deterministic mode; `role` is for people;
    `scorer` names the layout of a step scorer whose weights do not show it."""

    profile: ProfileOverride | None = None
    role: str | None = None
    scorer: str | None = None
    deterministic: bool = False


def read_notes(fields: Mapping[str, Any], source: str) -> FolderNotes:
    """The notes in a parsed `branchwise.json`; `ModelLoadError` names an unknown key or a wrong type."""
    try:
        return msgspec.convert(fields, FolderNotes)
    except msgspec.ValidationError as error:
        raise ModelLoadError(f"{source}: {error}; known are {_known_keys()}") from None


def load_profile(
    tokenizer: "HfTokenizer", override: ProfileOverride | None, eos_ids: Iterable[int], source: str
) -> ModelProfile:
    """The profile that the tokenizer and its template show, or the folder's own; `eos_ids` come from the
    configurations; `source` names the override in errors."""
    stop_ids = {*eos_ids}
    if tokenizer.eos_id is not None:
        stop_ids.add(tokenizer.eos_id)
    template = "" if tokenizer.template is None else tokenizer.template.text
    stop_ids |= _ids(tokenizer, (text for text in _TURN_ENDS if text in template))
    if override is None:
        start, end = _thinking(tokenizer, template)
        return ModelProfile(think_start=start, think_end=end, stop_ids=frozenset(stop_ids))
    if override.final_answer not in ("eos", "boxed"):
        raise ModelLoadError(
            f'{source}: final_answer is {override.final_answer!r}; it must be "eos" or "boxed"'
        )
    for text in override.stop:
        if tokenizer.token_id(text) is None:
            raise ModelLoadError(f"{source}: stop {text!r} is not one token of the tokenizer")
    stop_ids |= _ids(tokenizer, override.stop)
    fields = {field: getattr(override, field) for field in override.__struct_fields__ if field != "stop"}
    return ModelProfile(**fields, stop_ids=frozenset(stop_ids))


def _thinking(tokenizer: "HfTokenizer", template: str) -> tuple[str | None, str | None]:
    """The thinking markers that are tokens and that the template speaks of."""
    for start, end in _THINKING:
        if tokenizer.token_id(end) is not None and (end in template or start in template):
            return start, end
    return None, None


def _ids(tokenizer: "HfTokenizer", texts: Iterable[str]) -> set[int]:
    return {token for text in texts if (token := tokenizer.token_id(text)) is not None}


def _known_keys() -> str:
    keys = (
        *FolderNotes.__struct_fields__,
        *(f"profile.{field}" for field in ProfileOverride.__struct_fields__),
    )
    return ", ".join(keys)
