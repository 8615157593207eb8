"""The figures of one engine: what is counted, and that no two engines share any."""

from typing import ClassVar

import pytest
import structlog
from branchwise.engine.histogram import Histogram
from branchwise.engine.protocol import ScoreParams, Unlimited
from branchwise.engine.sched.limits import StepLimits
from branchwise.engine.sched.observer import Observer
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.request import Request
from branchwise.engine.sched.sequence import Sequence
from branchwise.engine.timing import Timings
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from support.checks import Rig, extend_params
from support.oracle_engine import OracleEngine

METER = Unlimited()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Value by (name, label values)."""
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


@pytest.mark.anyio
async def test_what_an_engine_did_is_in_its_metrics_and_in_no_other_s() -> None:
    rig, other = OracleEngine(num_blocks=100), OracleEngine(num_blocks=100)
    async with rig.engine as engine, other.engine:
        seq = engine.open(range(1, 12), seed=1, namespace="somebody")
        await engine.extend(seq, extend_params(5), METER)
        await engine.score(seq, ScoreParams(logprobs_from=11), METER)
        again = engine.open(range(1, 12), seed=2, namespace="somebody")
        await engine.extend(again, extend_params(1), METER)
        text = engine.metrics.render()
        found = samples(text)
        assert found["branchwise_generated_tokens_total",] == 6
        assert found["branchwise_first_token_seconds_count",] == 2
        assert found["branchwise_inter_token_seconds_count",] == 4
        assert found["branchwise_queue_wait_seconds_count",] == 3
        assert found["branchwise_step_seconds_count",] == found["branchwise_steps_total",]
        assert found["branchwise_cached_tokens_total",] == 8
        kinds = [value for key, value in found.items() if key[0] == "branchwise_rows_total"]
        assert sum(kinds) == found["branchwise_scheduled_rows_total",] > 0
        states = [found["branchwise_blocks", "policy", state] for state in ("free", "cached", "owned")]
        assert sum(states) == 99
        assert found["branchwise_requests_running",] == 0
        assert found["branchwise_tokens_per_second",] > 0
        assert "somebody" not in text
        assert samples(other.engine.metrics.render())["branchwise_generated_tokens_total",] == 0


def test_durations_run_from_submission_to_start_to_each_token() -> None:
    now = [0.0]
    timings = Timings(clock=lambda: now[0])
    rig = Rig(observer=timings)
    rig.extend(rig.open([1, 2, 3]), extend_params(3))
    for seconds in (4.0, 4.5, 5.5):
        now[0] = seconds
        timings.tick()
        rig.step()
        timings.stepped(seconds)
    assert (timings.queue_wait.total, sum(timings.queue_wait.counts)) == (4.0, 1)
    assert (timings.first_token.total, sum(timings.first_token.counts)) == (4.0, 1)
    assert (timings.between_tokens.total, sum(timings.between_tokens.counts)) == (1.5, 2)
    now[0] = 10.0
    assert timings.tokens_per_second() == pytest.approx(3 / 10)
    now[0] = 15.0  # only the last step is recent
    assert timings.tokens_per_second() == 0.0


def test_a_histogram_counts_up_to_its_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.1, 0.1, 0.5, 7.0, 0.5):
        histogram.observe(seconds)
    assert histogram.cumulative() == [("0.1", 2.0), ("1.0", 4.0), ("+Inf", 5.0)]
    assert histogram.total == pytest.approx(8.2)


def test_every_change_of_state_is_a_debug_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    with capture_logs() as events:
        rig = Rig(num_blocks=12, max_model_len=40, observer=Timings(), limits=StepLimits(max_waiting=4))
        sequences = [rig.open([order + 1] * 9, seed=order) for order in range(5)]
        for order, seq in enumerate(sequences):
            rig.extend(seq, extend_params(24, order=(order,)))
        rig.run()
        rig.scheduler.park(sequences[0])
    assert {event["event"] for event in events} == {
        "request waits",
        "request runs",
        "request was preempted",
        "request was refused",
        "request ended",
        "sequence was parked",
    }
    assert all(event["log_level"] == "debug" for event in events)


class Lives(Observer):
    """Holds each request to the states that may follow each other."""

    FOLLOWS: ClassVar = {
        None: {"waiting", "refused"},
        "waiting": {"running", "done"},
        "running": {"waiting", "done"},
    }

    def __init__(self) -> None:
        self.states: dict[int, str] = {}

    def move(self, request: int, state: str) -> None:
        assert state in self.FOLLOWS[self.states.get(request)], (request, self.states.get(request), state)
        self.states[request] = state

    def refused(self, request: int, seq: Sequence, error: Exception) -> None:
        self.move(request, "refused")

    def submitted(self, request: Request) -> None:
        self.move(request.id, "waiting")

    def started(self, request: Request) -> None:
        self.move(request.id, "running")

    def preempted(self, request: Request) -> None:
        self.move(request.id, "waiting")

    def ended(self, request: Request, error: Exception | None) -> None:
        self.move(request.id, "done")


@given(
    blocks=st.integers(9, 16),
    rows=st.integers(1, 20),
    tokens=st.lists(st.integers(1, 18), min_size=4, max_size=8),
    fail_at=st.sets(st.integers(1, 30), max_size=3),
    cancel=st.integers(0, 3),
)
def test_no_change_of_state_goes_unobserved(
    blocks: int, rows: int, tokens: list[int], fail_at: set[int], cancel: int
) -> None:
    lives = Lives()
    limits = StepLimits(max_rows=rows, max_waiting=6)
    rig = Rig(blocks, 4, max_model_len=32, observer=lives, limits=limits)

    def fail(plan: ModelPlan) -> None:
        if rig.scheduler.counters.steps in fail_at:
            raise ConnectionError("injected")

    rig.runner.before_step = fail
    requests = [
        rig.extend(rig.open([n + 1] * 9, seed=n), extend_params(count)) for n, count in enumerate(tokens)
    ]
    rig.step()
    rig.scheduler.cancel(requests[cancel])
    rig.run()
    assert set(lives.states) == set(requests)
    assert set(lives.states.values()) <= {"done", "refused"}
    assert list(lives.states.values()).count("refused") == max(0, len(tokens) - 6)


def test_nothing_is_logged_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    with capture_logs() as events:
        rig = Rig(observer=Timings())
        rig.extend_now(rig.open([1, 2, 3]), extend_params(2))
    assert events == []
