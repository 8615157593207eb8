"""Whether a model of transformers computes on packed rows what it computes on one sequence: asked once, when
it is opened.

Transformers has hundreds of families; one that couples the rows of a batch, counts positions of its own or
attends in a way that its attention call does not show would give wrong tokens without any error.
"""

import torch

from ..errors import ModelLoadError
from ..models.open import LoadedModel
from ..models.transformers_model import TransformersModel
from ..protocol import SeqId
from ..sched.plan import ModelPlan, Span
from .runner import Runner

_BLOCK = 4
_LENGTH, _CUT = 7, 4
_ASKED, _OTHER = SeqId(1), SeqId(2)
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Allowed distance of the logits, relative to their length. A family that is computed wrongly is off by its
whole length."""


def check_packed(model: LoadedModel) -> None:
    """`ModelLoadError` where the model's own forward pass and two packed steps disagree."""
    if not isinstance(model.decoder, TransformersModel):
        return
    try:
        distance = _distance(model, model.decoder)
    except Exception as error:  # the classes of transformers meet a configuration that they did not check
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelLoadError(f"{model.info.source}: a step on this model failed ({reason})") from error
    if not distance <= _TOLERANCE[model.decoder.dtype]:
        raise ModelLoadError(
            f"{model.info.source}: through paged attention on packed rows it computes something else than "
            f"on its own (logits differ by {distance:.2g} of their length); its family is not supported"
        )


def _distance(model: LoadedModel, decoder: TransformersModel) -> float:
    """Between the logits of the last row, relative to their length."""
    last = model.info.vocab_size - 1
    tokens = tuple((97 * index * index + 13) % last for index in range(_LENGTH))
    runner = Runner(model, 5, block_size=_BLOCK)
    other = Span(_OTHER, 0, tokens[:3], (3,), 0)
    first = Span(_ASKED, 0, tokens[:_CUT], (1,), 0)
    rest = Span(_ASKED, _CUT, tokens[_CUT:], (1, 2), _CUT, keep_logits=True)
    for spans in ((other, first), (Span(_OTHER, 3, tokens[:1], (3,), 3), rest)):
        runner.execute(ModelPlan(model=model.info.name, spans=spans))
    with torch.inference_mode():
        hidden = decoder.plain(torch.tensor(tokens, device=decoder.device))
        expected = decoder.head(hidden[-1:], None)[0]
    return float((runner.kept_logits(_ASKED) - expected).norm() / expected.norm())
