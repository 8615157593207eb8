"""What events tell is what the graph holds: the page's tree of a watched search against that of its graph."""

from typing import Any

import anyio
import msgspec
import pytest
from branchwise import Budget, Reasoner
from branchwise.reasoning.events import BranchOpened, Event
from branchwise.reasoning.solution import Solution
from branchwise.reasoning.treepage import saved_page
from support.browser import Browser

PROBLEM = "Use 3, 7, 12 and 18 to make 45"
STRATEGIES = (
    "greedy",
    "best_of_n(n=6)",
    "beam(n=4, width=2)",
    "mcts",
    "ab_mcts",
    "refine",
    "chain",
    "speculative_rejection",
    "dvts(n=4, width=2)",
)
# Every step with its parent, its place, its scores and how its branch ended, whatever its id.
OUTLINE = """((tree) => {
  const summary = tree.summary();
  const told = (node) => [node.branch, node.text, node.tokens, node.start, node.truncated,
    node.parent ? node.parent.text : null, node.verified, tree.reasonOf(node), summary.get(node.id),
    [...node.scores].map(([name, value]) => [name, value.toFixed(6)]).sort()];
  const steps = [...tree.nodes.values()].filter((node) => node.tokens);
  return { steps: steps.map((node) => JSON.stringify(told(node))).sort(), chosen: tree.chosenPath().size,
    accounts: tree.accounts(summary), spent: tree.spent.tokens, ending: tree.ending };
})"""


@pytest.fixture(scope="module")
def page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A page whose scripts are at hand."""
    file = tmp_path_factory.mktemp("page") / "empty.html"
    file.write_text(saved_page({}))
    chromium.open(file.as_uri())
    return chromium


def watched(strategy: str) -> tuple[Solution, list[Event]]:
    """A search of the reference model, and what was told of it."""

    async def main() -> tuple[Solution, list[Event]]:
        events: list[Event] = []
        async with Reasoner.open("reference", threads=1) as reasoner:
            solution = await reasoner.solve(
                PROBLEM, strategy, Budget(tokens=400), seed=1, on_event=events.append, deltas=True
            )
        return solution, events

    return anyio.run(main)


def json_of(data: Any) -> str:
    return msgspec.json.encode(data).decode()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_tree_of_the_events_is_the_tree_of_the_graph(page: Browser, strategy: str) -> None:
    solution, events = watched(strategy)
    live = page.run(
        f"(() => {{ const tree = new SearchTree(); for (const event of {json_of(events)}) "
        f"tree.apply(event); return {OUTLINE}(tree); }})()"
    )
    saved = page.run(f"{OUTLINE}(SearchTree.ofGraph({json_of(solution.graph.to_node_link())}))")
    assert live == saved
    assert live["spent"] == solution.usage.tokens


def test_a_fork_tells_what_it_shares_and_events_what_is_spent() -> None:
    solution, events = watched("beam(n=4, width=2)")
    nodes = list(solution.graph.nodes())
    starts = {event.branch: event.start for event in events if isinstance(event, BranchOpened)}
    assert starts["0"] == nodes[0].length
    firsts = {node.branch: node.start for node in reversed(nodes) if node.kind != "prompt" and node.length}
    assert firsts
    assert {branch: starts[branch] for branch in firsts} == firsts
    assert [event.flops_spent for event in events] == sorted(event.flops_spent for event in events)
    assert events[-1].flops_spent == solution.usage.flops
    assert max(event.kv_owned for event in events) <= solution.usage.engine["kv_peak_tokens"]
    assert events[-1].kv_owned == 0


def test_a_graph_says_how_its_search_ended_and_where_the_answer_is() -> None:
    solution, _ = watched("best_of_n(n=6)")
    ending = solution.graph.to_node_link()["graph"]["ending"]
    assert (ending["answer"], ending["tokens"]) == (solution.answer, solution.usage.tokens)
    path = [node.text for node in solution.graph.nodes() if node.branch == ending["branch"]]
    assert "".join(path) == solution.text
