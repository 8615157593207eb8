"""Which speculation a search or a branch asks for, checked against what the back end can do."""

from ..engine.drafting.params import Speculate, parse_speculate
from ..engine.errors import CapabilityError
from ..engine.protocol import Backend


def checked_speculate(text: str | None, backend: Backend) -> Speculate | None:
    """What `text` names, None for none. Raises `UsageError` and `CapabilityError` in one line."""
    if text is None:
        return None
    method = parse_speculate(text)
    if not backend.capabilities.speculates:
        raise CapabilityError(f"speculate={text!r}: this engine drafts no tokens; leave it out")
    return method
