"""The search graph: one node per step, one edge per continuation, on networkx."""

import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import networkx as nx

from ..engine.errors import UsageError

PROMPT = "prompt"


class NodeState(enum.StrEnum):
    """Life of a node: its branch goes on, ended by itself, or was pruned."""

    LIVE = "live"
    FINISHED = "finished"
    PRUNED = "pruned"


class Node(msgspec.Struct, kw_only=True, eq=False):
    """One step of one branch: positions `[start, start + length)` of its path, prompt included.

    `tokens_spent` and `flops_spent` are what the ledger was charged for this node; they stay when the step
    is pruned or truncated. `scores` holds the last value by verifier name. `owners` counts the live
    branches whose path holds the node.
    """

    id: str
    branch: str
    kind: str
    start: int
    seed: int
    length: int = 0
    text: str = ""
    stop: str = ""
    state: NodeState = NodeState.LIVE
    reason: str = ""
    scores: dict[str, float | None] = {}
    verified: bool | None = None
    tokens_spent: int = 0
    flops_spent: int = 0
    owners: int = 0


_EXPORTED = (
    "branch",
    "kind",
    "start",
    "seed",
    "length",
    "text",
    "stop",
    "state",
    "reason",
    "verified",
    "tokens_spent",
    "flops_spent",
)


class SearchGraph:
    """All steps of one search, pruned ones included. Node ids are stable under a seed: `branch#index`.

    `nx_graph` is the `networkx.DiGraph` whose node attribute `node` is the `Node`.
    """

    def __init__(self) -> None:
        self.nx_graph: nx.DiGraph = nx.DiGraph()
        self.notes: list[dict[str, Any]] = []
        self.ending: dict[str, Any] = {}
        """How the search ended: its answer and the branch that has it. Empty while it runs."""

    def add(self, node: Node, parent: Node | None) -> None:
        """Add a step below `parent`, or a new root."""
        self.nx_graph.add_node(node.id, node=node)
        if parent is not None:
            self.nx_graph.add_edge(parent.id, node.id)

    def remove(self, node: Node) -> None:
        """Take back a step that never came to be."""
        self.nx_graph.remove_node(node.id)

    def nodes(self) -> Iterator[Node]:
        """All nodes by branch path and index: the order is the same however the branches interleaved."""
        nodes: list[Node] = [attributes["node"] for attributes in self.nx_graph.nodes.values()]
        yield from sorted(nodes, key=_place)

    def __len__(self) -> int:
        return self.nx_graph.number_of_nodes()

    @property
    def tokens_spent(self) -> int:
        """Sum of the nodes' tokens: equals the ledger's."""
        return sum(node.tokens_spent for node in self.nodes())

    @property
    def flops_spent(self) -> int:
        """Sum of the nodes' logical work: equals the ledger's."""
        return sum(node.flops_spent for node in self.nodes())

    def plain(self) -> nx.DiGraph:
        """A copy whose attributes are plain values, for export and for networkx algorithms."""
        plain = nx.DiGraph()
        for node in self.nodes():
            plain.add_node(node.id, **_attributes(node))
        for node in self.nodes():
            plain.add_edges_from((parent, node.id) for parent in self.nx_graph.predecessors(node.id))
        return plain

    def to_node_link(self) -> dict[str, Any]:
        """networkx node-link data (`edges="links"`), with the strategy's notes and how the search ended in
        the graph's attributes."""
        data = nx.node_link_data(self.plain(), edges="links")
        data["graph"] = {"notes": self.notes, "ending": self.ending}
        return data

    def to_graphml(self) -> str:
        """GraphML; absent values are left out, since the format has no null."""
        plain = self.plain()
        for _, attributes in plain.nodes(data=True):
            for key in [k for k, v in attributes.items() if v is None]:
                del attributes[key]
            if "text" in attributes:
                attributes["text"] = _printable(attributes["text"])
        return "\n".join(nx.generate_graphml(plain))

    def to_mermaid(self) -> str:
        """A Mermaid flowchart, dashed where no finished path goes on from a pruned step."""
        names = {node.id: f"n{index}" for index, node in enumerate(self.nodes())}
        finished = [node.id for node in self.nodes() if node.state is NodeState.FINISHED]
        kept = set[str]().union(*(nx.ancestors(self.nx_graph, name) for name in finished))
        lines = ["flowchart TD"]
        for node in self.nodes():
            label = _mermaid_text(node.text) or node.kind
            lines.append(f'  {names[node.id]}["{label}"]')
            if node.state is NodeState.PRUNED and node.id not in kept:
                lines.append(f"  style {names[node.id]} stroke-dasharray: 4")
        lines.extend(f"  {names[a]} --> {names[b]}" for a, b in self.nx_graph.edges)
        return "\n".join(lines) + "\n"

    def write(self, path: str | Path) -> None:
        """Write by suffix: .json (node-link), .graphml, .mmd (Mermaid). Raises `UsageError` for others."""
        path = Path(path)
        path.write_text(self.render(path.suffix), encoding="utf-8")

    def render(self, suffix: str) -> str:
        """The export named by a file suffix. Raises `UsageError` where there is none."""
        match suffix:
            case ".json":
                return json.dumps(self.to_node_link(), ensure_ascii=False, indent=1) + "\n"
            case ".graphml":
                return self.to_graphml() + "\n"
            case ".mmd":
                return self.to_mermaid()
        raise UsageError(f"graph format {suffix!r}: use .json, .graphml or .mmd")


def _place(node: Node) -> tuple[bool, tuple[int, ...], int]:
    branch, _, index = node.id.partition("#")
    path = tuple(map(int, branch.split(".")))
    return path[0] < 0, path, int(index)  # what verifiers asked comes behind the search itself


def _attributes(node: Node) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(node, name) for name in _EXPORTED}
    values["state"] = str(node.state)
    values["seed"] = str(node.seed)
    for verifier, score in node.scores.items():
        values[f"score_{verifier}"] = score
    return values


def _printable(text: str) -> str:
    """XML 1.0 has no control characters besides tab and line ends."""
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)


def _mermaid_text(text: str) -> str:
    short = text if len(text) <= 60 else text[:57] + "..."
    return (
        _printable(short)
        .replace("&", "#amp;")
        .replace('"', "#quot;")
        .replace("<", "#lt;")
        .replace(">", "#gt;")
        .replace("\n", "<br/>")
    )
