"""Draws and scores from hidden states without their logits, where the head has kernels for that."""

from collections.abc import Callable

from torch import Tensor

from ...kernels.drawn import Drawn
from ...kernels.interface import FusedHead


class FusedRows:
    """A head whose logits need not be written, on hidden states [rows, hidden] as the forward pass returns
    them: see `FusedHead`."""

    def __init__(self, head: FusedHead, norm: Callable[[Tensor], Tensor]) -> None:
        self._head = head
        self._norm = norm
        self.most_draws = head.most_draws

    def draw(self, hidden: Tensor, temperature: Tensor, keys: Tensor) -> Drawn:
        """See `FusedHead.draw`."""
        return self._head.draw(self._norm(hidden), temperature, keys)

    def logprobs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """See `FusedHead.logprobs`."""
        return self._head.logprobs(self._norm(hidden), targets)


def fused_rows(head: object, norm: Callable[[Tensor], Tensor]) -> FusedRows | None:
    """None where the head has no kernels for that."""
    return FusedRows(head, norm) if isinstance(head, FusedHead) and head.most_draws else None
