"""A score that a strategy computed by itself, put on a branch the way a verifier's is."""

from ..verifiers.base import Candidate, Score


class Computed:
    """Implements `Verifier`: gives every candidate the same `value` in [0, 1]. `name` stands in the graph."""

    sound = False
    oracle = False
    step_scores = True
    models: tuple[str, ...] = ()

    def __init__(self, name: str, value: float) -> None:
        self.name = name
        self.value = value

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=self.value)
