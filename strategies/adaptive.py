"""A strategy that picks another, and its width, from a probe and the budget that is left."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ..engine.errors import UsageError
from ..engine.user_path import user_path
from .base import Branch, Needs, Search, Strategy
from .choice_table import SHIPPED, Band, ChoiceTable, agreement, load_table, mean_score, situation
from .conclusion import conclude_all, reach_answer
from .grammar import format_strategy, parse_strategy


class Adaptive(Strategy, tag="adaptive", kw_only=True, frozen=True):
    """Draw a few samples, predict the difficulty from them, and run what a fitted table says.

    Compute-optimal scaling with predicted difficulty (Snell et al. 2024, arXiv 2408.03314).
    `table`: a file of `branchwise calibrate`; none: the one fitted on the reference family. The probe is
    charged, and its samples stay candidates. `arm` runs behind a probe of `probe` samples whatever they show:
    what calibration measures. `probe` none: as the table says.
    """

    table: Annotated[str, Meta(min_length=1)] | None = None
    probe: Annotated[int, Meta(ge=0, le=64)] | None = None
    arm: Strategy | None = None

    BEGUN: ClassVar[str] = "adaptive: begun"
    PROBED: ClassVar[str] = "adaptive: probe"
    """The notes that hold the situation, and what the probe showed: none where a sound pass ended it."""

    async def run(self, search: Search) -> None:
        case = situation(
            sound=search.verifier is not None and search.verifier.sound,
            scores_steps=search.step_verifier is not None,
        )
        search.note(self.BEGUN, case=case)
        if self.arm is not None:
            await self._draw(search, self.probe or 0)
            await self._hand_over(search, self.arm)
            return
        table = self._loaded()
        if table.weights_digest not in ("", search.weights_digest):
            search.note(
                f"adaptive: the table was fitted on {table.model}, whose weights are not the policy's: it "
                "may choose badly; make one with branchwise calibrate"
            )
        left = search.budget.tokens_left
        band = table.band(case, left)
        signals = await self._draw(search, band.probe if self.probe is None else self.probe)
        value = signals[band.signal]
        place = band.bin(value)
        choice = band.choices[place]
        search.note(
            f"adaptive: chose {choice.strategy}: {_shown(band, value, place)}; {left} tokens left, fitted at "
            f"{band.tokens}; it solved {choice.accuracy:.3f} of {choice.problems} such of {table.suite}",
            case=case,
            signal=value,
            bin=place,
            strategy=choice.strategy,
        )
        await self._hand_over(search, parse_strategy(choice.strategy))

    def requirements(self) -> Needs:
        """Those of the arm; without one, the models that any choice may need. Steps are scored only where
        there is a scorer: the table has its choices by what can check an answer."""
        if self.arm is not None:
            return super().requirements()
        models = [model for choice in self._loaded().strategies() for model in choice.requirements().models]
        return Needs(models=tuple(dict.fromkeys(models)))

    def only_path(self) -> tuple[int, ...] | None:
        return None if self.arm is None or self.probe else self.arm.only_path()

    def is_lossless(self) -> bool:
        """Whether all that it may choose is."""
        arms = [self.arm] if self.arm is not None else self._loaded().strategies()
        return all(arm.is_lossless() for arm in arms)

    def _loaded(self) -> ChoiceTable:
        path = SHIPPED if self.table is None else user_path(self.table)
        table = load_table(path)
        for choice in table.strategies():
            if asks_a_table(choice):
                raise UsageError(
                    f"choice table {path}: {format_strategy(choice)} would choose by a table again: give it "
                    "an arm, or take it out"
                )
        return table

    async def _draw(self, search: Search, count: int) -> dict[str, float | None]:
        """Sample and offer `count` solutions; what they show."""
        branches = search.root.fork(count) if count else []
        cut: list[Branch] = []
        scores: dict[str, float | None] = {}

        async def sample(branch: Branch) -> None:
            if not await reach_answer(branch):
                cut.append(branch)
                return
            if search.step_verifier is not None:
                scores[branch.id] = (await branch.evaluate(search.step_verifier)).value
            checked = await branch.evaluate()
            if checked.value is None and search.step_verifier is not search.verifier:
                await branch.evaluate(search.step_verifier)

        finished: list[Branch] = []
        async with search.each(branches, sample) as done:
            async for branch in done:
                if branch not in cut:
                    search.offer(branch)
                    finished.append(branch)
        await conclude_all(search, cut)
        signals = {
            "agreement": agreement(await search.classes(branches)),
            "score": mean_score([scores.get(branch.id) for branch in branches]),
        }
        if count:
            search.note(self.PROBED, samples=count, **signals)
        return signals

    async def _hand_over(self, search: Search, chosen: Strategy) -> None:
        """Let `chosen` search on, by its own rule of choice, with the probe's samples as candidates."""
        search.select_by(chosen.selection())
        await chosen.run(search)


def asks_a_table(strategy: Strategy) -> bool:
    """Whether `adaptive` without an arm is in it."""
    if isinstance(strategy, Adaptive) and strategy.arm is None:
        return True
    return any(asks_a_table(inner) for inner in strategy.nested())


def _shown(band: Band, value: float | None, place: int) -> str:
    if not band.probe:
        return "no probe"
    told = "nothing" if value is None else f"{value:.3f}"
    return f"a probe of {band.probe} shows {band.signal} {told}, bin {place + 1} of {len(band.choices)}"
