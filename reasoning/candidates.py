"""The candidates of a search, and which of them is its incumbent."""

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from ..verifiers.vote import Ballot, Select, select
from .branch import SearchBranch
from .electorate import Electorate
from .solution import CandidateRecord
from .written import Written, written_on


class Offer:
    """A candidate as it stood when it was offered."""

    def __init__(self, branch: SearchBranch) -> None:
        self.branch = branch
        self.text = branch.text
        self.thinking = branch.phases.thinking_text(branch.tokens)
        self.conclusion = branch.conclusion
        self.written: Written = written_on(branch)
        self.calls = branch.calls
        tools = branch.run.tools
        self.said = self.conclusion
        if tools is not None and (self.calls or tools.required):  # without them: the begin of a call
            self.said = tools.format.said(self.conclusion) if self.calls else ""
        self.path = branch.path
        self.rounds = 0
        """Rounds of a tournament that it survived."""
        self.record = CandidateRecord(
            id=branch.id,
            answer=branch.answer,
            score=branch.score,
            verified=branch.verified,
            tokens=len(branch.tokens),
            stop=str(branch.steps[-1].stop) if branch.steps else "",
            complete=branch.complete,
            mean_logprob=branch.mean_logprob,
        )

    def ballot(self, name: str | None) -> Ballot:
        """The candidate as the vote sees it; `name` is the class of its answer."""
        record = self.record
        return Ballot(
            order=self.path,
            key=name,
            length=record.tokens,
            score=record.score,
            logprob=record.mean_logprob,
            complete=record.complete,
            verified=record.verified,
            rounds=self.rounds,
        )


class Candidates:
    """What was offered, each branch once, and the one that `selection` chooses among all of it."""

    def __init__(self, selection: Select, electorate: Electorate) -> None:
        self.selection = selection
        self._electorate = electorate
        self._offers: dict[tuple[int, ...], Offer] = {}
        self._retired: set[tuple[int, ...]] = set()
        self._best: Offer | None = None
        self._counted: int | None = None

    def __iter__(self) -> Iterator[Offer]:
        """By branch path."""
        return iter([self._offers[path] for path in sorted(self._offers)])

    def __len__(self) -> int:
        return len(self._offers)

    def add(self, offer: Offer) -> None:
        """Take a candidate; it replaces an earlier one of the same branch."""
        self._electorate.key(offer.record.answer)  # a task that cannot read it says so here
        self._offers[offer.path] = offer
        self._counted = None

    def get(self, path: tuple[int, ...]) -> Offer | None:
        """What was offered of the branch at `path`."""
        return self._offers.get(path)

    def select_by(self, rule: Select) -> None:
        """Choose by another rule from now on."""
        self.selection = rule
        self._counted = None

    def retire(self, paths: Iterable[tuple[int, ...]]) -> None:
        """Leave these out of the choice as long as another candidate has an answer."""
        self._retired.update(paths)
        self._counted = None

    def rank(self, rounds: Mapping[tuple[int, ...], int]) -> None:
        """How many rounds of a tournament the branches survived, by path."""
        for path, count in rounds.items():
            self._offers[path].rounds = count
        self._counted = None

    def ballots(self) -> list[Ballot]:
        """The candidates that count as a vote sees them, by branch path: all, where those that were not
        retired have no answer."""
        offers = list(self)
        names = self._electorate.classes([offer.record.answer for offer in offers])
        ballots = [offer.ballot(name) for offer, name in zip(offers, names, strict=True)]
        serving = [ballot for ballot in ballots if ballot.order not in self._retired]
        return serving if any(ballot.key for ballot in serving) else ballots

    @property
    def best(self) -> Offer | None:
        """The incumbent as it was offered, by the classes of answers that are known now."""
        if self._counted != self._electorate.version:
            ballots = self.ballots()
            index = select(ballots, self.selection)
            self._best = None if index is None else self._offers[ballots[index].order]
            self._counted = self._electorate.version
        return self._best

    @property
    def shown(self) -> Offer | None:
        """The incumbent, or where all abstain the one whose text says most: complete before cut, then by
        score and log-probability, the lowest branch of equals. It is no answer."""
        return self.best or max(self, key=_worth, default=None)

    async def compare(self) -> None:
        """Find out which answers vote together, where that was left open; see `Electorate.compare`."""
        await self._electorate.compare([offer.record.answer for offer in self])


def _worth(offer: Offer) -> tuple[bool, float, float]:
    record = offer.record
    score = -inf if record.score is None else record.score
    return record.complete, score, -inf if record.mean_logprob is None else record.mean_logprob
