"""How an extension is speculated on, and the grammar that names it: `ngram(k=4)`, `suffix(k=8, width=2)`,
`draft(k=4, verify=ratio)`."""

import re
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from ..checked import Checked
from ..errors import UsageError

MOST_DRAFTED = 32
"""Tokens that one step verifies at most per sequence."""

Length = Annotated[int, Meta(ge=1, le=MOST_DRAFTED)]


MOST_PATHS = 8
"""Paths of a tree of drafts that one step verifies at most per sequence."""

Width = Annotated[int, Meta(ge=1, le=MOST_PATHS)]

Verify = Literal["coupled", "ratio"]
"""`coupled`: a draft stays while it equals the token that the target draws with its own noise, so what is
generated does not depend on the drafts. `ratio`: a draft stays with probability min(1, p / q) (Leviathan et
al. 2023); the text follows the same distribution, but is another one than without drafts."""


class _Method(Checked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all methods share: up to `k` tokens ahead, and the rule that keeps them."""

    k: Length = 4
    verify: Verify = "coupled"

    @property
    def paths(self) -> int:
        """Continuations that are verified side by side, at most."""
        return 1


class Ngram(_Method, frozen=True, kw_only=True, tag="ngram", forbid_unknown_fields=True):
    """Up to `k` tokens that followed the longest earlier occurrence of the sequence's own end."""


class _Tree(_Method, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`width` above 1 verifies a tree: so many paths from the sequence's end."""

    width: Width = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > 1 and self.verify == "ratio":
            raise ValueError("a tree (width > 1) is verified by coupled noise only; leave verify out")

    @property
    def paths(self) -> int:
        return self.width


class Suffix(_Tree, frozen=True, kw_only=True, tag="suffix", forbid_unknown_fields=True):
    """Up to `k` tokens that followed the sequence's end most often in the branches of its search; with
    `verify="ratio"` in the sequence itself, for what siblings have written by then depends on the load."""

    k: Length = 8


class DraftModel(_Tree, frozen=True, kw_only=True, tag="draft", forbid_unknown_fields=True):
    """Up to `k` tokens that the open model named `model` writes: with the target's own noise, or for the
    ratio test with noise apart. Of a tree the paths behind the first branch off to its runners-up."""

    model: str = "draft"


Speculate = Ngram | Suffix | DraftModel
"""What proposes the tokens. Verified by coupled noise, none of them changes what is generated, only in how
many steps."""

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
    defaults = {f.name: f.default for f in msgspec.structs.fields(kind) if f.name != "verify"}
    defaults["verify"] = "|".join(get_args(Verify))
    return f"{kind.__struct_config__.tag}({', '.join(f'{name}={value}' for name, value in defaults.items())})"
