"""One long chain of thought, its length under control."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..engine.errors import UsageError
from .base import Branch, Search, Strategy
from .probing import LEVELS, Effort, Probed, probe, settled
from .thought import Pause, Thought

_PATIENCE, _CHUNK = LEVELS[Effort.MID]


class Chain(Strategy, tag="chain", kw_only=True, frozen=True):
    """One chain that is made to think longer, made to stop, or stopped when its answer stands.

    *Budget forcing* (s1, Muennighoff et al. 2025, arXiv 2501.19393): where the model ends its thinking before
    `min_think` tokens, and besides the first `waits` times whatever the length, the end is taken back and
    `wait` forced in its place (None: the profile's); never where a limit cut it. `max_think` caps the tokens
    of thinking, forced ones included; then the end of thinking is forced and the answer comes from the
    reserve. `waits` None: 1, or 0 where another parameter says how long to think.

    *Early exit* (Dynasor, Fu et al. 2024, arXiv 2412.20993): every `probe_every` tokens a fork is asked for
    the answer, and thinking ends when the last `tau` probes agree without hesitation. `effort` names the
    paper's pairs of both. `probe` is the text that leads to the answer (None: the profile's).

    *No thinking* (Ma et al. 2025, arXiv 2504.09858): `no_think` prefills a thought that is over at once.

    A model without a thinking phase thinks in its answer: there the end of the sequence is taken back, and a
    cut chain is asked for its answer by the text `final` (None: the profile's).
    """

    lossless: ClassVar[bool] = False

    min_think: Annotated[int, Meta(ge=1)] | None = None
    max_think: Annotated[int, Meta(ge=1)] | None = None
    waits: Annotated[int, Meta(ge=0, le=1024)] | None = None
    wait: Annotated[str, Meta(min_length=1)] | None = None
    effort: Effort | None = None
    probe_every: Annotated[int, Meta(ge=1)] | None = None
    tau: Annotated[int, Meta(ge=2, le=64)] | None = None
    probe: Annotated[str, Meta(min_length=1)] | None = None
    no_think: bool = False
    final: Annotated[str, Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_think is not None and self.max_think is not None and self.min_think > self.max_think:
            raise UsageError(
                f"strategy chain: min_think={self.min_think} is above max_think={self.max_think}: "
                "give a smaller min_think"
            )
        if self.no_think and (self.min_think or self.max_think or self.waits or self.probes):
            raise UsageError(
                "strategy chain: no_think=true leaves no thinking to lengthen or probe: leave out min_think, "
                "max_think, waits, effort, probe_every, tau and probe"
            )

    @property
    def probes(self) -> bool:
        """Whether it looks for an early exit."""
        return any((self.effort, self.probe_every, self.tau, self.probe))

    @property
    def ignored_ends(self) -> int:
        """Ends of thinking that are taken back whatever the length."""
        if self.waits is not None:
            return self.waits
        return 0 if self.min_think or self.max_think or self.probes or self.no_think else 1

    @property
    def patience(self) -> tuple[int, int]:
        """Probes that must agree, and tokens between probes."""
        tau, chunk = (_PATIENCE, _CHUNK) if self.effort is None else LEVELS[self.effort]
        return self.tau or tau, self.probe_every or chunk

    async def run(self, search: Search) -> None:
        branch = search.root
        self._check_model(branch)
        thought = Thought(search, branch, self.max_think)
        if self.no_think:
            await _think_nothing(branch)
            _tell(search, thought, self)
        else:
            await self._think(search, thought)
        await thought.answer(branch.profile.final if self.final is None else self.final)
        await branch.evaluate()
        search.offer(branch)

    def only_path(self) -> tuple[int, ...] | None:
        return ()

    async def _think(self, search: Search, thought: Thought) -> None:
        branch = thought.branch
        wait = branch.profile.wait if self.wait is None else self.wait
        suffix = branch.profile.probe if self.probe is None else self.probe
        tau, chunk = self.patience
        probed: list[Probed] = []
        waits, early = 0, False
        while True:
            pause = await thought.go_on(chunk if self.probes else None)
            if pause is Pause.CUT:
                break
            if pause is Pause.ENDED:
                too_early = waits < self.ignored_ends or thought.length < (self.min_think or 0)
                if not too_early or not thought.takes(wait) or not await thought.reopen(wait):
                    break
                waits += 1
            elif self.probes and (found := await probe(search, branch, suffix)) is not None:
                probed.append(found)
                early = settled(probed, tau) and thought.length >= (self.min_think or 0)
                if early:
                    search.note("early exit", branch=branch.id, answer=found.key, probes=len(probed), tau=tau)
                    break
        _tell(search, thought, self, waits=waits, cut=pause is Pause.CUT, early_exit=early)

    def _check_model(self, branch: Branch) -> None:
        """Refuse what the model cannot do, before it writes a token."""
        if self.no_think and not branch.thinking:
            raise UsageError(
                "strategy chain: no_think=true needs a model that is to think, and this one does not, or "
                "--no-think says so already: leave it out"
            )
        if self.probes and not (branch.thinking or self.probe or branch.profile.probe):
            raise UsageError(
                "strategy chain: this model ends no thinking that a probe could end: give the text that "
                "leads to its answer, as probe=TEXT"
            )


async def _think_nothing(branch: Branch) -> None:
    """Write a thought that is over at once, where the model has such a one; the answer forces its end."""
    profile = branch.profile
    if not profile.no_think:
        return
    opening = "" if branch.thinking_begun else f"{(profile.think_start or '').rstrip()}\n"
    thought = f"{opening}{profile.no_think}\n{(profile.think_end or '').rstrip()}\n\n"
    if len(thought.encode()) < branch.room:
        await branch.append(thought)


def _tell(
    search: Search,
    thought: Thought,
    chain: Chain,
    *,
    waits: int = 0,
    cut: bool = False,
    early_exit: bool = False,
) -> None:
    """Note the figures that s1 judges length control by: how long it thought, and within which limits."""
    length, low, high = thought.length, chain.min_think, chain.max_think
    bounded = low is not None or high is not None
    within = (low or 0) <= length and (high is None or length <= high)
    search.note(
        "thinking",
        branch=thought.branch.id,
        tokens=length,
        waits=waits,
        cut=cut,
        early_exit=early_exit,
        at_least=low,
        at_most=high,
        within=within if bounded else None,
    )
