"""One engine under several reasoners: it is shared, and stays open whatever becomes of them."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from branchwise.engine.errors import BranchwiseError, EngineClosed, UsageError
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.opened import open_engine
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Solution
from branchwise.reasoning.source import find_source
from branchwise.strategies.best_of_n import BestOfN
from support.openai_server import serving
from support.remote import TEXT, remote_engine, scripted_info, scripted_server
from support.scripted import following
from support.searching import PROMPT_LENGTH, Samples, outside_engine, scripted

pytestmark = pytest.mark.anyio

PROBLEM = "Use 3, 7, 12 and 18 to make 45"
STRATEGY = BestOfN(n=6, stop_on_verified=False)


@pytest.fixture
def anyio_backend() -> str:
    """What is tested is the models' life; both event loops are tested on the oracle."""
    return "asyncio"


async def solve(reasoner: Reasoner, seed: int = 1) -> Solution:
    return await reasoner.solve(PROBLEM, STRATEGY, Budget(tokens=420), seed=seed)


async def test_reasoners_of_one_engine_solve_side_by_side_as_they_would_alone() -> None:
    async with Reasoner.open("reference", device="cpu", threads=1) as reasoner:
        alone = [outside_engine(await solve(reasoner, seed)) for seed in (1, 2)]
    found: dict[int, Any] = {}

    async def one(reasoner: Reasoner, seed: int) -> None:
        found[seed] = outside_engine(await solve(reasoner, seed))

    async with (
        open_engine("reference", device="cpu", threads=1) as engine,
        Reasoner.open(engine=engine) as first,
        Reasoner.open(engine=engine) as second,
        anyio.create_task_group() as group,
    ):
        assert first.reproducible, "as the policy's source has it"
        group.start_soon(one, first, 1)
        group.start_soon(one, second, 2)
    assert [found[1], found[2]] == alone


async def fail_on(reasoner: Reasoner) -> None:
    async with Reasoner.open(engine=reasoner.engine, reproducible=False) as failing:
        await solve(failing)
        raise ZeroDivisionError


async def test_an_engine_outlives_the_reasoners_that_share_it() -> None:
    async with Reasoner.open("reference", device="cpu", threads=1) as owner:
        with pytest.raises(ZeroDivisionError):
            await fail_on(owner)
        async with Reasoner.open("reference", prm="reference", engine=owner.engine) as second:
            again = await solve(second)
        assert outside_engine(await solve(owner)) == outside_engine(again)
    with pytest.raises(EngineClosed):
        await solve(second)


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (lambda: str(find_source("reference").draft), {}, "has .*policy open as its policy; leave model out"),
        (lambda: None, {"judge": "reference"}, "judge='reference': the engine given has no judge open"),
        (lambda: None, {"prm": "reference-small"}, "has .*prm open as its prm; leave prm out"),
        (lambda: None, {"kv_memory": 1 << 20}, "kv_memory=1048576: the engine given is open already"),
        (lambda: "./nowhere", {}, "no such folder or file"),
    ],
)
async def test_what_an_open_engine_cannot_give_is_refused(
    model: Callable[[], str | None], options: dict[str, Any], said: str
) -> None:
    async with open_engine("reference", device="cpu", threads=1) as engine:
        with pytest.raises(BranchwiseError, match=said) as caught:
            async with Reasoner.open(model(), engine=engine, **options):
                pass
        assert "\n" not in str(caught.value)


async def test_a_back_end_that_runs_is_an_engine() -> None:
    engine = scripted()
    async with Reasoner.open(engine=engine, reproducible=True) as reasoner:
        solution = await reasoner.solve("task", Samples(n=4), Budget(tokens=400), seed=0)
        assert solution.answer is not None
        with pytest.raises(UsageError, match="has no prm open"):
            async with Reasoner.open(engine=reasoner.engine, prm="reference"):
                pass
    assert engine.live_sequences == 0


async def test_a_remote_engine_is_shared_like_any_other() -> None:
    script = following(lambda prompt, seed: TEXT, PROMPT_LENGTH)
    server = scripted_server(script)
    async with serving(server), remote_engine({"policy": (scripted_info(script), [server])}) as engine:
        for reproducible in (True, False):
            async with Reasoner.open(engine=engine, reproducible=reproducible) as reasoner:
                solution = await reasoner.solve("task", "greedy", Budget(tokens=100), seed=0)
                assert solution.answer == "42"
