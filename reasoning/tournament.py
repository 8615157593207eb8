"""The selection `knockout`: a verifier that compares candidates holds a tournament among those offered."""

from ..verifiers.base import Verifier
from ..verifiers.knockout import knockout
from ..verifiers.vote import Select, electorate
from .candidates import Candidates, Offer
from .scoring import prefer_branch


async def hold_tournament(candidates: Candidates, verifier: Verifier | None) -> None:
    """Let `verifier` compare the candidates, where they are chosen among by knockout: those of the best tier,
    one for each answer, by branch id. Until it is over the incumbent is that of the weighted vote.
    """
    if candidates.selection is not Select.KNOCKOUT or verifier is None:
        return
    offers = {offer.path: offer for offer in candidates}
    first_of: dict[str | None, Offer] = {}
    for ballot in electorate(candidates.ballots()):
        first_of.setdefault(ballot.key, offers[ballot.order])
    fighters = list(first_of.values())
    if len(fighters) < 2:
        return

    async def prefer(first: Offer, second: Offer) -> float | None:
        return await prefer_branch(first.branch, second.branch, verifier)

    rounds = await knockout(fighters, prefer)
    candidates.rank({fighter.path: count for fighter, count in zip(fighters, rounds, strict=True)})
