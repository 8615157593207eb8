"""What a model thinks of the prompt that it is given: the log-probability of each of its tokens."""

from typing import TYPE_CHECKING

import anyio.lowlevel

from .reading import read_scores
from .written import Written

if TYPE_CHECKING:
    from .branch import SearchBranch


async def score_prompt(root: "SearchBranch", leading: int) -> Written | None:
    """The tokens of the root's prompt, with `leading` alternatives for each; the first, which nothing stands
    before, has no log-probability. None where the budget does not cover them."""
    run, count = root.run, len(root.prompt)
    if count == 1:
        await anyio.lowlevel.checkpoint()
        return Written(tokens=root.prompt, logprobs=(None,), alternatives=(None,))
    run.touch()
    scores = await read_scores(root, run.policy, logprobs_from=1, top_logprobs=leading)
    run.touch()
    if scores.refused:
        return None
    others = scores.alternatives or (None,) * (count - 1)
    return Written(tokens=root.prompt, logprobs=(None, *scores.logprobs), alternatives=(None, *others))
