"""What a run has to do: one task per problem, strategy, budget and seed."""

import hashlib
from collections.abc import Collection, Iterator, Sequence

import msgspec

from ...reasoning.budget import Budget
from ...reasoning.cli.quantity import parse_budget
from ...strategies.base import Strategy
from ...strategies.grammar import parse_strategy
from ..suites.base import Sample
from .recipe import UNLIMITED, Recipe


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy with one budget, as their grammars write them."""

    strategy: str
    budget: str

    @property
    def tokens(self) -> int | None:
        """The most tokens that one problem may cost."""
        return self.limits.tokens

    @property
    def limits(self) -> Budget:
        return parse_budget(self.budget) if self.budget else Budget()

    @property
    def parsed(self) -> Strategy:
        return parse_strategy(self.strategy)

    def __str__(self) -> str:
        return f"{self.strategy} @ {self.budget or 'no limit'}"


class Key(msgspec.Struct, frozen=True):
    """What tells one record from another."""

    sample: str
    cell: Cell
    seed: int


class Task(msgspec.Struct, frozen=True):
    """Solve one sample once."""

    sample: Sample
    cell: Cell
    seed: int

    @property
    def key(self) -> Key:
        return Key(self.sample.id, self.cell, self.seed)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a recipe. `cells` are compared; `difficulty`, if any, only sorts the problems."""

    recipe: Recipe
    samples: Sequence[Sample]
    cells: tuple[Cell, ...]
    difficulty: Cell | None = None

    def tasks(self) -> Iterator[Task]:
        """All tasks: seed by seed, problem by problem, and all cells of a problem together, so that a run
        which is broken off still compares the same problems."""
        recipe = self.recipe
        for seed in range(recipe.seed, recipe.seed + recipe.seeds):
            for sample in self.samples:
                for cell in self.cells:
                    yield Task(sample, cell, seed)
        if self.difficulty is not None:
            for sample in self.samples:
                yield Task(sample, self.difficulty, recipe.seed + recipe.seeds)

    def missing(self, done: Collection[Key]) -> list[Task]:
        """The tasks that have no record yet."""
        return [task for task in self.tasks() if task.key not in done]

    @property
    def size(self) -> int:
        """How many tasks there are."""
        per_problem = len(self.cells) * self.recipe.seeds + (self.difficulty is not None)
        return len(self.samples) * per_problem

    @property
    def digest(self) -> str:
        """A hash of the samples, gold answers included: another one means another test."""
        data = msgspec.json.encode([(s.id, s.problem, s.gold, s.level) for s in self.samples])
        return hashlib.blake2b(data, digest_size=16).hexdigest()


def make_plan(recipe: Recipe, samples: Sequence[Sample]) -> Plan:
    """The plan of a checked recipe over the suite's samples."""
    cells = tuple(
        Cell(strategy=strategy, budget=budget) for strategy in recipe.strategies for budget in recipe.budgets
    )
    return Plan(recipe=recipe, samples=samples, cells=cells, difficulty=_difficulty_cell(recipe))


def _difficulty_cell(recipe: Recipe) -> Cell | None:
    if not recipe.difficulty:
        return None
    strategy = f"best_of_n(n={recipe.difficulty}, select=majority, stop_on_verified=false)"
    return Cell(strategy=strategy, budget=UNLIMITED)
