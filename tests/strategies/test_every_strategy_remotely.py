"""All registered strategies on a policy and a draft model that servers run, beside a reward model of this
process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from branchwise.engine.joined import JoinedEngine
from branchwise.engine.protocol import Capabilities
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.registry import strategy_names
from branchwise.verifiers.problem import Problem
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract import EXAMPLES, check_best
from support.openai_server import Fault, StandInServer, serving
from support.remote import remote_engine, scripted_info, scripted_server
from support.scripted import ScriptedEngine
from support.small_strategies import SMALL
from support.trees import digit_value, steps_and_an_answer

SCRIPT = steps_and_an_answer(2, "345")
each_name = pytest.mark.parametrize("name", strategy_names())


class Equipped:
    """Two servers of the policy, one of the draft model, and a step scorer that is not on a server."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.policies = [scripted_server(SCRIPT, delay_s=delay_s) for _ in range(2)]
        self.draft = scripted_server(SCRIPT, "draft", delay_s=delay_s)

    @property
    def servers(self) -> list[StandInServer]:
        return [*self.policies, self.draft]

    @property
    def tokens_written(self) -> int:
        return sum(server.written for server in self.servers)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[JoinedEngine, RemoteEngine]]:
        async with serving(*self.servers):
            policy, draft = (scripted_info(SCRIPT, name, max_model_len=4000) for name in ("policy", "draft"))
            remote = remote_engine({"policy": (policy, self.policies), "draft": (draft, [self.draft])})
            scorer = ScriptedEngine({}, rewards={"prm": digit_value}, max_model_len=4000)
            async with remote:
                yield JoinedEngine([remote, scorer]), remote  # pyright: ignore[reportArgumentType]
            assert remote.live_sequences == scorer.live_sequences == 0


async def run(
    equipped: Equipped,
    name: str,
    budget: Budget,
    *,
    seed: int = 0,
    reproducible: bool = False,
    interrupt: anyio.Event | None = None,
) -> Solution:
    async with equipped.open() as (engine, _), Reasoner.over(engine, reproducible=reproducible) as reasoner:
        with anyio.fail_after(30):
            return await reasoner.solve(
                Problem(text="task"), SMALL[name], budget, verifier="prm", seed=seed, interrupt=interrupt
            )


def check_books(solution: Solution) -> int:
    """All that was paid is on the nodes; how many tokens servers wrote for it."""
    nodes = solution.graph.tokens_spent, solution.graph.flops_spent
    assert nodes == (solution.usage.tokens, solution.usage.flops)
    forced = sum(node.tokens_spent for node in solution.graph.nodes() if node.kind == "forced")
    return solution.usage.tokens - forced


@each_name
@pytest.mark.parametrize("reproducible", [False, True])
def test_it_answers_and_pays_for_what_the_servers_wrote(name: str, reproducible: bool):
    equipped = Equipped()
    solution = anyio.run(lambda: run(equipped, name, Budget(tokens=10_000), reproducible=reproducible))
    assert (solution.reason in (Reason.EXHAUSTED, Reason.SOLVED), solution.error) == (True, None)
    assert solution.answer is not None
    check_best(solution)
    assert 0 < check_books(solution) <= equipped.tokens_written
    assert solution.usage.engine["cached_tokens"] > 0
    assert solution.usage.engine["computed_flops"] is None


@each_name
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    tokens=st.integers(1, 150),
    faults=st.lists(
        st.builds(lambda after: Fault(after=after), st.integers(0, 5)) | st.just(Fault(status=503)),
        max_size=2,
    ),
    seed=st.integers(0, 1000),
    reproducible=st.booleans(),
)
def test_the_budget_is_kept_and_the_books_balance_while_servers_fail(
    name, tokens, faults, seed, reproducible
):
    equipped = Equipped()
    equipped.policies[seed % 2].faults.extend(faults)
    solution = anyio.run(
        lambda: run(equipped, name, Budget(tokens=tokens), seed=seed, reproducible=reproducible)
    )
    assert solution.usage.tokens <= tokens
    assert check_books(solution) <= equipped.tokens_written
    assert solution.error is None


@each_name
def test_an_interrupt_closes_every_request(name: str):
    equipped = Equipped(delay_s=0.001)

    async def main() -> Solution:
        interrupt, found = anyio.Event(), []

        async def search() -> None:
            found.append(await run(equipped, name, Budget(tokens=10_000), interrupt=interrupt))

        async with anyio.create_task_group() as group:
            group.start_soon(search)
            await anyio.sleep(0.05)
            interrupt.set()
        return found[0]

    solution = anyio.run(main)
    assert solution.reason in (Reason.CANCELLED, Reason.EXHAUSTED)
    check_books(solution)
    assert all(server.streaming == 0 for server in equipped.servers)


def test_what_can_be_done_is_said_of_both_together():
    async def main() -> Capabilities:
        async with Equipped().open() as (engine, _):
            return engine.capabilities

    can = anyio.run(main)
    assert can == Capabilities(
        score_logprob=True, score_reward=True, token_stats=True, seeds=True, constrains=True
    )
