"""What stands on one branch: tokens, steps and their nodes, kept in step with the graph and the KV
account."""

from collections.abc import Callable, Sequence

import msgspec

from ..engine.protocol import Extension
from ..engine.text.stop import Stop
from ..strategies.base import Step
from .graph import PROMPT, Node, NodeState, SearchGraph
from .kv import KvHolder, OwnedKv
from .track import Track

Decode = Callable[[Sequence[int]], str]


class Trail:
    """Tokens after the prompt, the steps they form, and one graph node per step.

    `nodes[0]` is the prompt's. A node under way (`begin`) is closed by `end`, `end_extension` or `discard`.
    The caller holds the ledger's lock where the KV account may be read by the engine's thread.
    """

    def __init__(self, graph: SearchGraph, kv: OwnedKv, decode: Decode, *, branch: str, seed: int) -> None:
        self.nodes: list[Node] = []
        self.tokens: list[int] = []
        self.steps: list[Step] = []
        self.logprob_sum = 0.0
        self.logprob_count = 0
        self.born_at = 0
        self._graph = graph
        self._kv = kv
        self._decode = decode
        self._branch = branch
        self._seed = seed
        self._made = 0

    @property
    def prompt_length(self) -> int:
        return self.nodes[0].length

    def child(self, branch: str, seed: int) -> "Trail":
        """A trail that goes on from here; it shares the nodes up to now."""
        child = Trail(self._graph, self._kv, self._decode, branch=branch, seed=seed)
        child.nodes = list(self.nodes)
        child.tokens = list(self.tokens)
        child.steps = list(self.steps)
        child.logprob_sum, child.logprob_count = self.logprob_sum, self.logprob_count
        child.born_at = len(self.tokens)
        return child

    def open_root(self, length: int, text: str) -> None:
        """Make the prompt's node."""
        node = self._node(PROMPT, start=0)
        node.length, node.text = length, text
        self._graph.add(node, None)
        self.nodes.append(node)

    def begin(self, holder: KvHolder, kind: str) -> Node:
        """Start a node behind the last token."""
        node = self._node(kind, start=self.prompt_length + len(self.tokens))
        self._graph.add(node, self.nodes[-1])
        self.nodes.append(node)
        self._kv.attach(holder, node)
        return node

    def discard(self, holder: KvHolder) -> None:
        """Take back the last node: nothing was granted to it."""
        node = self.nodes.pop()
        self._kv.detach(holder, node)
        self._graph.remove(node)
        self._made -= 1

    def end(self, tokens: tuple[int, ...], stop: Stop) -> Step:
        """Close the node under way with forced tokens, which were charged one each."""
        node = self.nodes[-1]
        self._kv.resize(node, len(tokens) - node.length)
        node.tokens_spent = len(tokens)
        self.tokens.extend(tokens)
        return self._close(node, Step(tokens=tokens, text=self._decode(tokens), stop=stop))

    def end_extension(self, extension: Extension, ends: Sequence[int], track: Track) -> list[Step]:
        """Close the node under way with what the engine generated, as one node per step.

        `ends` are the offsets in `extension.tokens` behind each step. Tokens and work go to the node that
        holds their position; what was paid for and dropped goes to the last.
        """
        node = self.nodes[-1]
        tokens, logprobs = extension.tokens, extension.logprobs
        self._kv.resize(node, len(tokens) - node.length)
        self.tokens.extend(tokens)
        self.logprob_sum += sum(logprobs)
        self.logprob_count += len(logprobs)
        steps: list[Step] = []
        start, end_position = 0, node.start + len(tokens)
        if len(ends) > 1:
            node.flops_spent = 0
        for stop_offset in ends:
            last = stop_offset == ends[-1]
            if start:
                node = self._following(node)
            node.length = stop_offset - start
            node.tokens_spent = node.length + (extension.generated - len(tokens) if last else 0)
            if len(ends) > 1:
                until = None if last else node.start + node.length
                node.flops_spent = track.flops_between(node.start, until)
            steps.append(self._close(node, self._part(extension, slice(start, stop_offset), last=last)))
            start = stop_offset
        assert not ends or node.start + node.length == end_position
        return steps

    def truncate(self, holder: KvHolder, position: int) -> None:
        """Drop the tokens from `position` on; what they cost stays on their nodes."""
        end = self.prompt_length + position
        while self.nodes[-1].start >= end and len(self.nodes) > 1:
            node = self.nodes.pop()
            self._kv.detach(holder, node)
            node.state, node.reason = NodeState.PRUNED, "truncated"
        node = self.nodes[-1]
        if node.start + node.length > end:
            self._kv.resize(node, end - node.start - node.length)
        del self.tokens[position:]
        self._cut_steps(position)

    def own_nodes(self) -> list[Node]:
        """Nodes that this branch made."""
        return [node for node in self.nodes if node.branch == self._branch]

    def _cut_steps(self, position: int) -> None:
        kept: list[Step] = []
        length = 0
        for step in self.steps:
            if length >= position:
                break
            size = min(len(step.tokens), position - length)
            if size < len(step.tokens):
                step = self._shorten(step, size)
                self.nodes[-1].text = step.text
            kept.append(step)
            length += size
        self.steps = kept
        sampled = [value for step in kept for value in step.logprobs]
        self.logprob_sum, self.logprob_count = sum(sampled), len(sampled)

    def _shorten(self, step: Step, size: int) -> Step:
        tokens = step.tokens[:size]
        return msgspec.structs.replace(
            step,
            tokens=tokens,
            text=self._decode(tokens),
            stop=Stop.LENGTH,
            logprobs=step.logprobs[:size],
            stats=step.stats[:size],
            alternatives=step.alternatives[:size],
        )

    def _node(self, kind: str, start: int) -> Node:
        node = Node(
            id=f"{self._branch}#{self._made}", branch=self._branch, kind=kind, start=start, seed=self._seed
        )
        self._made += 1
        return node

    def _following(self, node: Node) -> Node:
        """The node that takes over the rest of a long extension; it has the same owners."""
        following = self._node(node.kind, start=node.start + node.length)
        following.owners = node.owners
        following.state, following.reason = node.state, node.reason
        self._graph.add(following, node)
        self.nodes.append(following)
        return following

    def _part(self, extension: Extension, place: slice, *, last: bool) -> Step:
        """One step of an extension; what it cost is not in it yet."""
        tokens = extension.tokens[place]
        return Step(
            tokens=tokens,
            text=self._decode(tokens),
            stop=extension.stop if last else Stop.MARK,
            logprobs=extension.logprobs[place],
            stats=extension.stats[place],
            alternatives=extension.alternatives[place],
        )

    def _close(self, node: Node, step: Step) -> Step:
        node.text, node.stop = step.text, str(step.stop)
        step = msgspec.structs.replace(step, generated=node.tokens_spent)
        self.steps.append(step)
        return step
