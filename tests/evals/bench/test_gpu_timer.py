"""The timer and the shapes of the GPU check."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from branchwise.evals.bench.gpu.spans import (
    beam,
    beside,
    best_of,
    draft_trees,
    prefills,
    shuffled,
    tree_of,
    unshared,
)
from branchwise.evals.bench.gpu.timer import CudaTimer
from branchwise.kernels import bounds
from branchwise.kernels.tables import RowSpan, TreeSpan
from hypothesis import given
from hypothesis import strategies as st


class Device:
    """What `CudaTimer` asks of torch.cuda, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.capturing: Graph | None = None
        self.graphs: list[Graph] = []

    def work(self) -> None:
        if self.capturing is None:
            self.now += 50e-6
        else:
            self.capturing.held += 1

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @contextmanager
        def capture(graph: "Graph") -> Iterator[None]:
            self.capturing = graph
            yield
            self.capturing = None

        def event(enable_timing: bool) -> "Event":
            assert enable_timing
            return Event(self)

        stream = SimpleNamespace(wait_stream=lambda other: None)
        for name, value in {
            "Stream": lambda device: stream,
            "current_stream": lambda device: stream,
            "stream": lambda stream: nullcontext(),
            "synchronize": lambda device: None,
            "Event": event,
            "CUDAGraph": lambda: Graph(self),
            "graph": capture,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self._at = 0.0

    def record(self) -> None:
        self._at = self._device.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: "Event") -> float:
        return (other._at - self._at) * 1e3


class Graph:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.held = 0
        device.graphs.append(self)

    def replay(self) -> None:
        launch = 4e-6 if len(self._device.graphs) == 1 else 0.0
        self._device.now += launch + self.held * 40e-6


def test_the_timer_gives_the_time_of_one_run_within_a_graph_of_several(monkeypatch: pytest.MonkeyPatch):
    device = Device()
    device.install(monkeypatch)
    seconds = CudaTimer(torch.device("cuda")).seconds(device.work)
    (graph,) = device.graphs
    assert graph.held == 6, "300 us of 50 us each"
    assert seconds == pytest.approx(40e-6 + 4e-6 / 6)


# Spans

SIZES = st.sampled_from([4, 16])


@given(rows=st.integers(1, 6), prompt=st.integers(0, 40), answer=st.integers(1, 20), size=SIZES)
def test_branches_share_whole_blocks_of_their_prompt_and_no_other(rows, prompt, answer, size):
    spans = best_of(rows, prompt, answer, size)
    tables = [span.blocks for span in spans]
    shared = set(tables[0]).intersection(*map(set, tables[1:]))
    assert len(shared) == (prompt // size if rows > 1 else len(tables[0]))
    assert all(span.start == prompt + answer - 1 for span in spans)
    whole = prompt // size * size
    tree = tree_of(spans, size, 7)
    assert tree == bounds.Tree(rows, whole + rows * (prompt + answer - whole), rows * (prompt + answer), 7)
    assert tree_of(unshared(spans), size, 7) == tree._replace(unique=tree.paths)
    assert tree_of(shuffled(spans), size, 7) == tree


def test_the_shapes_behind_the_goals_are_those_of_the_bounds():
    """The notes' table: bytes of best-of-n and beams."""
    assert tree_of(best_of(64, 2048, 512, 32), 32, 0) == bounds.best_of(64, 2048, 512, 0)
    assert tree_of(beam(64, 8, 512, 1024, 64, 32), 32, 0) == bounds.beam(64, 8, 512, 1024, 64, 0)
    drafts = tree_of(draft_trees(8, 16, 4096, 32), 32, 0)
    assert drafts.unique == bounds.draft_trees(8, 16, 4096, 0).unique


@given(seed=st.integers(0, 9))
def test_draft_trees_hold_themselves_and_their_parents_ancestors(seed: int):
    for span in draft_trees(2, 12, 20, 8, seed):
        assert isinstance(span, TreeSpan)
        for node, bits in enumerate(span.ancestors):
            assert bits >> node == 1, "a node sees itself and nothing behind it"
            others = bits ^ 1 << node
            assert node == 0 or others in span.ancestors[:node]


def test_steps_put_together_share_no_blocks():
    spans = beside(best_of(3, 8, 4, 4), prefills([(0, 5), (9, 3)], 4))
    assert [type(span) for span in spans] == [RowSpan] * 5
    first, second = ({block for span in part for block in span.blocks} for part in (spans[:3], spans[3:]))
    assert not first & second
    assert not set(spans[3].blocks) & set(spans[4].blocks)
