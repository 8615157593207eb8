"""The shipped reference family as a model source."""

from pathlib import Path

import msgspec

from ...reasoning.source import ModelSource

MODELS = Path(__file__).parent / "models"
SOLVES = (
    'Countdown ("Use 3, 7 and 12 to make 43"), arithmetic ("12 + 7*3 - 5") '
    'and calculator calls ("Use the calculator: 37*45 + 12")'
)


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


def open_small_source() -> ModelSource:
    """The reference family with a reward model that costs half as much; it is also what `--prm
    reference-small` means."""
    return msgspec.structs.replace(open_source(), name="reference-small", prm=MODELS / "prm-small")
