"""The shipped reference family as a model source."""

from pathlib import Path

from ...reasoning.source import ModelSource

MODELS = Path(__file__).parent / "models"
SOLVES = 'Countdown ("Use 3, 7 and 12 to make 43") and arithmetic ("12 + 7*3 - 5")'


def open_source() -> ModelSource:
    """Policy, draft and process reward model of the reference family."""
    return ModelSource(
        name="reference",
        policy=MODELS / "policy",
        draft=MODELS / "draft",
        prm=MODELS / "prm",
        reproducible=True,
        deterministic=True,
        tasks_only=True,
        solves=SOLVES,
    )
