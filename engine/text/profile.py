"""What is particular to a model's text: where thinking ends, what marks a step, which ids stop it."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import ModelLoadError
from .families import FAMILIES, Family, named_family, shown_family
from .template import ChatTemplate

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


class MarkedTokenizer(Protocol):
    """What a profile is read from: the tokenizer's own end token, its chat template, and its tokens."""

    @property
    def eos_id(self) -> int | None: ...

    @property
    def template(self) -> ChatTemplate | None: ...

    def token_id(self, text: str) -> int | None: ...


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Markers of one model, as text and as ids of its tokenizer.

    `step_mark` is a literal string that ends a step (None: a blank line outside code fences and display
    maths). `think_start`, `think_end` are None for models without a thinking phase. `stop_ids` is the union
    of the generation config's, the tokenizer's and the chat template's end ids. `wait` is the text that asks
    for more thinking (s1, Muennighoff et al. 2025, arXiv 2501.19393), `final` the text that asks for the
    answer where no end of thinking can be forced. `probe` is the text behind which a model names, still
    thinking, the answer it would give now, up to a closing brace (Dynasor, Fu et al. 2024, arXiv 2412.20993);
    None: it tells behind the end of thinking only. `no_think` is the thought of a model that is to answer at
    once (NoThinking, Ma et al. 2025, arXiv 2504.09858), "" for none. `final_answer` names the closed form
    that ends an answer: "eos" (only the end of the sequence), or "boxed". `call`, `call_end`, `result`,
    `result_end` enclose a tool call and its result in models that were taught them.
    """

    step_mark: str | None = None
    think_start: str | None = None
    think_end: str | None = None
    wait: str = "Wait"
    final: str = "\n\nFinal Answer: \\boxed{"
    probe: str | None = (
        "... Oh, I suddenly got the answer to the whole problem, **Final Answer**\n\n\\[ \\boxed{"
    )
    no_think: str = "Okay, I think I have finished thinking."
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

    `family` names one of `FAMILIES`, whose markers stand where no field says otherwise. Without it the folder
    describes its own text: it ends its answers with the sequence, is asked for none in words and has no
    ready-made thought, unless a field says so.
    """

    family: str | UnsetType = UNSET
    step_mark: str | UnsetType | None = UNSET
    think_start: str | UnsetType | None = UNSET
    think_end: str | UnsetType | None = UNSET
    wait: str | UnsetType = UNSET
    final: str | UnsetType = UNSET
    probe: str | UnsetType | None = UNSET
    no_think: str | UnsetType = UNSET
    final_answer: str | UnsetType = UNSET
    stop: tuple[str, ...] = ()
    call: str | UnsetType | None = UNSET
    call_end: str | UnsetType | None = UNSET
    result: str | UnsetType | None = UNSET
    result_end: str | UnsetType | None = UNSET


_OWN_TEXT = {"final_answer": "eos", "final": "", "probe": None, "no_think": ""}
"""What a folder without a family leaves out."""


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
    tokenizer: MarkedTokenizer, override: ProfileOverride | None, eos_ids: Iterable[int], source: str
) -> ModelProfile:
    """The profile that the tokenizer and its template show, or the folder's own; `eos_ids` come from the
    configurations; `source` names the override in errors."""
    stop_ids = {*eos_ids}
    if tokenizer.eos_id is not None:
        stop_ids.add(tokenizer.eos_id)
    template = "" if tokenizer.template is None else tokenizer.template.text
    family = shown_family(template, tokenizer.token_id) if override is None else _family(override, source)
    inside = frozenset() if family is None else family.inside
    stop_ids |= _ids(tokenizer, (text for text in _TURN_ENDS if text in template and text not in inside))
    fields = {} if family is None else {"think_start": family.think_start, "think_end": family.think_end}
    if override is not None:
        fields |= _given(override, source)
        stop_ids |= _stops(tokenizer, override, source)
    return ModelProfile(**fields, stop_ids=frozenset(stop_ids))


def _family(override: ProfileOverride, source: str) -> Family | None:
    """The family that a folder names."""
    if isinstance(override.family, UnsetType):
        return None
    family = named_family(override.family)
    if family is None:
        known = ", ".join(family.name for family in FAMILIES)
        raise ModelLoadError(f"{source}: family is {override.family!r}; it must be one of {known}")
    return family


def _given(override: ProfileOverride, source: str) -> dict[str, Any]:
    """The profile's fields that a folder gives, or leaves out on purpose."""
    fields: dict[str, Any] = dict(_OWN_TEXT) if isinstance(override.family, UnsetType) else {}
    for name in override.__struct_fields__:
        value = getattr(override, name)
        if name not in ("family", "stop") and value is not UNSET:
            fields[name] = value
    if fields.get("final_answer", "eos") not in ("eos", "boxed"):
        raise ModelLoadError(
            f'{source}: final_answer is {fields["final_answer"]!r}; it must be "eos" or "boxed"'
        )
    return fields


def _stops(tokenizer: MarkedTokenizer, override: ProfileOverride, source: str) -> set[int]:
    for text in override.stop:
        if tokenizer.token_id(text) is None:
            raise ModelLoadError(f"{source}: stop {text!r} is not one token of the tokenizer")
    return _ids(tokenizer, override.stop)


def _ids(tokenizer: MarkedTokenizer, texts: Iterable[str]) -> set[int]:
    return {token for text in texts if (token := tokenizer.token_id(text)) is not None}


def _known_keys() -> str:
    keys = (
        *FolderNotes.__struct_fields__,
        *(f"profile.{field}" for field in ProfileOverride.__struct_fields__),
    )
    return ", ".join(keys)
