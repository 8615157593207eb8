"""How many rows the next step may have: all, or fewer after a step ran out of memory."""

RECOVERY_STEPS = 64
"""Steps that must succeed before a lowered budget is doubled."""


class StepBudget:
    """`rows` for the next step. A model whose step ran out of memory is tried once more, with half of its
    prefill rows; the budget then recovers step by step, so that it does not fail again at once.
    """

    def __init__(self, max_rows: int) -> None:
        self.rows = max_rows
        self._max_rows = max_rows
        self._retrying: set[str] = set()
        self._succeeded = 0

    def retry(self, model: str, *, decodes: int, prefills: int) -> bool:
        """A step of `decodes` and `prefills` rows ran out of memory on `model`: whether to try it again."""
        if model in self._retrying:
            self._retrying.discard(model)
            return False
        self._retrying.add(model)
        self.rows = max(decodes + prefills // 2, 1)
        self._succeeded = 0
        return True

    def succeeded(self, model: str) -> None:
        """A step on `model` was committed."""
        self._retrying.discard(model)
        if self.rows == self._max_rows:
            return
        self._succeeded += 1
        if self._succeeded >= RECOVERY_STEPS:
            self.rows = min(2 * self.rows, self._max_rows)
            self._succeeded = 0


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, on the host or on a device, without importing torch."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)
