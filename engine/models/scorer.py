"""Which published step scorer a model folder holds: its notes, tensors, architecture or name tell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import ModelLoadError
from ..text.step_format import Scorer, label_ids
from ..text.tokenizer import HfTokenizer
from .config import HeadConfig, HeadKind, architecture_of, head_of

_VALUE_HEAD = "v_head.summary.weight"
_OUTER_LAYER = "score.2.weight"
_WRAPPER = "pretrained_model."
"""Prefix of a backbone that was saved inside of its value-head wrapper."""

_NAMES = {
    Scorer.RLHFLOW: (("rlhflow", "prm"), ("llama3.1-8b-prm-",)),
    Scorer.MATH_SHEPHERD: (("math-shepherd", "prm"),),
}
"""Label-token scorers are plain language models: only a name tells, one that has all words of a tuple."""


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under the names that they have outside of a value-head wrapper."""
    return {name.removeprefix(_WRAPPER): tensor for name, tensor in tensors.items()}


def find_scorer(
    fields: Mapping[str, Any], tensors: Mapping[str, Tensor], named: str | None, path: Path
) -> Scorer | None:
    """The layout of the step scorer in folder `path`, None for a model that is none. `named` is the folder's
    own word for it; `ModelLoadError` where that is unknown or the tensors say otherwise."""
    if named is not None:
        return _checked(named, tensors, path)
    if _VALUE_HEAD in tensors:
        return Scorer.SKYWORK
    if _OUTER_LAYER in tensors:
        return Scorer.QWEN_MATH if tensors[_OUTER_LAYER].shape[0] == 2 else Scorer.CLASSIFICATION
    if head_of(fields).kind is HeadKind.SCORE:
        return Scorer.CLASSIFICATION
    if architecture_of(fields).endswith(("RewardModel", "PrmModel")):
        raise ModelLoadError(
            f"{path}: {architecture_of(fields)} has no head that is known; known are {_OUTER_LAYER} "
            f"(Qwen2.5-Math-PRM) and {_VALUE_HEAD} (Skywork-o1-Open-PRM)"
        )
    return named_scorer(fields, path)


def named_scorer(fields: Mapping[str, Any], path: Path) -> Scorer | None:
    """The label-token scorer that a folder's name, or the name that it was saved under, speaks of."""
    names = "/".join((*path.resolve().parts[-3:], str(fields.get("_name_or_path", "")))).lower()
    for scorer, patterns in _NAMES.items():
        if any(all(word in names for word in words) for words in patterns):
            return scorer
    return None


def head_config(
    scorer: Scorer | None, fields: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: HfTokenizer
) -> HeadConfig:
    """The output head of a model, a step scorer or not."""
    if _VALUE_HEAD in tensors:
        return HeadConfig(HeadKind.VALUE, 1)
    if _OUTER_LAYER in tensors:
        return HeadConfig(HeadKind.TWO_LAYERS, tensors[_OUTER_LAYER].shape[0])
    labels = label_ids(scorer, tokenizer) if scorer is not None else ()
    return HeadConfig(HeadKind.LABEL_TOKENS, len(labels), labels) if labels else head_of(fields)


def _checked(named: str, tensors: Mapping[str, Tensor], path: Path) -> Scorer:
    known = ", ".join(Scorer)
    if named not in list(Scorer):
        raise ModelLoadError(f"{path}: scorer {named!r} is not known; known are {known}")
    scorer = Scorer(named)
    needs = {Scorer.QWEN_MATH: _OUTER_LAYER, Scorer.SKYWORK: _VALUE_HEAD}.get(scorer)
    if needs is not None and needs not in tensors:
        raise ModelLoadError(f"{path} lacks the tensor {needs}, which the scorer {named!r} has")
    return scorer
