"""Which speculation a search or a branch asks for, checked against what the back end can do."""

from ..engine.drafting.params import DraftModel, Speculate, parse_speculate
from ..engine.errors import CapabilityError
from ..engine.protocol import Backend


def checked_speculate(text: str | None, backend: Backend) -> Speculate | None:
    """What `text` names, None for none. Raises `UsageError` and `CapabilityError` in one line."""
    if text is None:
        return None
    method = parse_speculate(text)
    if not backend.capabilities.speculates:
        raise CapabilityError(f"speculate={text!r}: this engine drafts no tokens; leave it out")
    if isinstance(method, DraftModel):
        _check_draft_model(text, method.model, backend)
    return method


def _check_draft_model(text: str, name: str, backend: Backend) -> None:
    models = backend.models
    if name not in models:
        known = ", ".join(sorted(models))
        raise CapabilityError(
            f"speculate={text!r}: no model {name!r} is open; open one, or use one of: {known}"
        )
    if models[name].head != "lm" or models[name].vocab_size != models["policy"].vocab_size:
        raise CapabilityError(
            f"speculate={text!r}: model {name!r} is no language model of the policy's vocabulary"
        )


def for_model(method: Speculate | None, model: str) -> Speculate | None:
    """The speculation of an extension on `model`: a model does not draft for itself."""
    return None if isinstance(method, DraftModel) and method.model == model else method
