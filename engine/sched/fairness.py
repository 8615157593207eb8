"""Rows of a step shared between tenants: deficit round robin, counted in rows that were planned."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest

from .board import Board
from .request import Request

CARRIED_STEPS = 8
"""A tenant may be owed, or owe, what so many steps of the usual size have: enough to catch up after a time in
which it could not use its share, and too little to push another far below its own over a few hundred steps.
"""

USUAL_STEPS = 50
"""The usual size of a step is the mean over about so many."""


class StepShares:
    """What each tenant may still have of one step, and what it got."""

    __slots__ = ("_left", "held", "spent")

    def __init__(self, left: Mapping[str, int]) -> None:
        self._left: dict[str, int] | None = dict(left)
        self.spent: Counter[str] = Counter()
        self.held: list[Request] = []
        """Requests that could run now but for their tenant's share."""

    def left(self, tenant: str, rows_left: int) -> int:
        """Rows that `tenant` may still have of the `rows_left` of the step."""
        if self._left is None:
            return rows_left
        return min(rows_left, self._left.get(tenant, 0))

    def spend(self, tenant: str, rows: int) -> None:
        self.spent[tenant] += rows
        if self._left is not None:
            self._left[tenant] = self._left.get(tenant, 0) - rows

    def lift(self) -> list[Request]:
        """Whoever can use them gets the rows that are left; returns who was held back until now."""
        held, self.held = self.held, []
        self._left = None
        return held


class Fairness:
    """Deficits of the tenants, while one of them has more to do than it got.

    Each earns its fair part of the rows that all got together, pays for its own, and carries the difference
    into the next step. Rows that one cannot use go to the others at no charge: a tenant that is alone has
    the whole step. Nothing here runs while one tenant is active.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._deficits: dict[str, float] = {}
        self._demands: dict[str, int] = {}
        self._usual_rows = 0.0

    def several(self) -> bool:
        """Whether requests of more than one tenant are waiting or running."""
        waiting, running = self._board.waiting.tenants, self._board.running.tenants
        return len(waiting) > 1 or len(running) > 1 or len(waiting.keys() | running.keys()) > 1

    def divide(self, max_rows: int) -> StepShares:
        """The shares of the step that begins, of `max_rows` rows."""
        self._demands = self._demand(max_rows)
        return StepShares(divided(max_rows, self._demands, self._deficits))

    def settle(self, shares: StepShares) -> None:
        """The step is planned: carry the deficits of those that wanted more."""
        spent = shares.spent
        self._usual_rows += (spent.total() - self._usual_rows) / USUAL_STEPS
        if all(spent[tenant] >= rows for tenant, rows in self._demands.items()):
            self._deficits = {}
            return
        earned = fair_parts(sum(spent[tenant] for tenant in self._demands), self._demands)
        most = CARRIED_STEPS * self._usual_rows
        self._deficits = {
            tenant: min(max(self._deficits.get(tenant, 0.0) + part - spent[tenant], -most), most)
            for tenant, part in earned.items()
        }

    def in_turn(self, requests: Iterable[Request]) -> Iterator[Request]:
        """One request of each tenant after the other, the tenant with the largest deficit first; of one
        tenant in the given order."""
        queues: dict[str, list[Request]] = {}
        for request in requests:
            queues.setdefault(request.seq.tenant, []).append(request)
        ranked = sorted(queues, key=lambda tenant: (-self._deficits.get(tenant, 0.0), tenant))
        rounds = zip_longest(*(queues[tenant] for tenant in ranked))
        return (request for request in chain.from_iterable(rounds) if request is not None)

    def _demand(self, max_rows: int) -> dict[str, int]:
        """Rows that each tenant's requests could use now, counted up to one more than the step has; an upper
        bound, because what the cache holds and what a meter refuses is not known yet."""
        demands: dict[str, int] = {}
        prefilled: set[int] = set()
        for request in chain(self._board.running, self._board.waiting):
            tenant = request.seq.tenant
            known = demands.setdefault(tenant, 0)
            if known > max_rows or request.held:
                continue
            holder = request.seq.holder
            rows = max(request.end - min(holder.computed, request.first), 1)
            if rows > 1:
                if holder.id in prefilled:
                    continue
                prefilled.add(holder.id)
            demands[tenant] = min(known + rows, max_rows + 1)
        return demands


def fair_parts(rows: float, demands: Mapping[str, int]) -> dict[str, float]:
    """Equal parts of `rows`, but to nobody more than its demand while others want more (max-min fairness)."""
    parts: dict[str, float] = {}
    for tenant, demand in sorted(demands.items(), key=lambda item: item[1]):
        parts[tenant] = min(float(demand), rows / (len(demands) - len(parts)))
        rows -= parts[tenant]
    return parts


def divided(rows: int, demands: Mapping[str, int], deficits: Mapping[str, float]) -> dict[str, int]:
    """`rows` shared by need: first to each what it is owed, an equal part and its deficit, then what is left
    in equal parts to those that want more."""
    order = sorted(demands, key=lambda tenant: (-deficits.get(tenant, 0.0), tenant))
    shares: dict[str, int] = {}
    left = rows
    for tenant in order:
        owed = int(max(rows / len(order) + deficits.get(tenant, 0.0), 0))
        shares[tenant] = min(owed, demands[tenant], left)
        left -= shares[tenant]
    while left and (hungry := [tenant for tenant in order if shares[tenant] < demands[tenant]]):
        part = max(left // len(hungry), 1)
        for tenant in hungry:
            more = min(part, demands[tenant] - shares[tenant], left)
            shares[tenant] += more
            left -= more
    return shares
