"""A search's usage in inspect_ai's terms."""

from inspect_ai.model import ModelUsage  # pyright: ignore[reportMissingImports]

from ...reasoning.solution import Usage
from ..runs.record import Spent


def usage_of(usage: Usage | Spent) -> ModelUsage | None:
    """Input is what was read, the prompt and what verifiers read; output is what a budget of tokens counts.
    None where the tokens are not known."""
    if usage.tokens is None:
        return None
    read = (usage.prompt_tokens or 0) + (usage.scored_tokens or 0)
    return ModelUsage(input_tokens=read, output_tokens=usage.tokens, total_tokens=read + usage.tokens)
