"""How an extension is speculated on, and the grammar that names it: `ngram(k=4)`, `suffix(k=8)`,
`draft(k=4)`."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..errors import UsageError

MOST_DRAFTED = 32
"""Tokens that one step verifies at most per sequence."""

Length = Annotated[int, Meta(ge=1, le=MOST_DRAFTED)]


class Ngram(msgspec.Struct, frozen=True, kw_only=True, tag="ngram", forbid_unknown_fields=True):
    """Up to `k` tokens that followed the longest earlier occurrence of the sequence's own end."""

    k: Length = 4


class Suffix(msgspec.Struct, frozen=True, kw_only=True, tag="suffix", forbid_unknown_fields=True):
    """Up to `k` tokens that followed the sequence's end most often in the branches of its search."""

    k: Length = 8


class DraftModel(msgspec.Struct, frozen=True, kw_only=True, tag="draft", forbid_unknown_fields=True):
    """Up to `k` tokens that the open model named `model` writes, with the target's own noise."""

    k: Length = 4
    model: str = "draft"


Speculate = Ngram | Suffix | DraftModel
"""What proposes the tokens. None of them changes what is generated, only in how many steps."""

_NAMES = {kind.__struct_config__.tag: kind for kind in (Ngram, Suffix, DraftModel)}
_FORM = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*")


def parse_speculate(text: str) -> Speculate:
    """Read `name` or `name(parameter=value, ...)`; raises `UsageError` in one line."""
    found = _FORM.fullmatch(text)
    name = found[1] if found else ""
    if found is None or name not in _NAMES:
        raise UsageError(
            f"speculate {text!r}: give one of {', '.join(_usage(kind) for kind in _NAMES.values())}"
        )
    try:
        return msgspec.convert(_settings(found[2] or "") | {"type": name}, _NAMES[name], strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        reason = str(error).split(" - at")[0]
        raise UsageError(f"speculate {text!r}: {reason}; write {_usage(_NAMES[name])}") from error


def _settings(text: str) -> dict[str, Any]:
    parts = [part for part in text.split(",") if part.strip()]
    pairs = [part.partition("=") for part in parts]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("parameters are written parameter=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _usage(kind: type[msgspec.Struct]) -> str:
    values = ", ".join(f"{field.name}={field.default}" for field in msgspec.structs.fields(kind))
    return f"{kind.__struct_config__.tag}({values})"
