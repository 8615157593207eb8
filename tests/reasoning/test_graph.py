"""The search graph as it is written for other programs."""

from branchwise.reasoning.graph import Node, NodeState, SearchGraph


def test_mermaid_dashes_what_was_discarded_and_no_step_of_a_finished_path():
    graph = SearchGraph()
    root = add(graph, "0#0", "problem", NodeState.PRUNED)
    kept = add(graph, "0.0#0", "good step", NodeState.PRUNED, root)
    add(graph, "0.0#1", "answer", NodeState.FINISHED, kept)
    add(graph, "0.1#0", "bad step", NodeState.PRUNED, root)
    lines = graph.to_mermaid().splitlines()
    names = {
        text: line.split("[")[0].strip() for line in lines for text in [line.partition('"')[2][:-2]] if text
    }
    dashed = {line.split()[1] for line in lines if "dasharray" in line}
    assert set(names) == {"problem", "good step", "answer", "bad step"}
    assert dashed == {names["bad step"]}


def add(graph: SearchGraph, name: str, text: str, state: NodeState, parent: Node | None = None) -> Node:
    """A step of the graph, below `parent`."""
    node = Node(id=name, branch=name.partition("#")[0], kind="step", start=0, seed=0, text=text, state=state)
    graph.add(node, parent)
    return node
