"""The engine thread: commands, plan, execute, commit, deliver; asleep when there is nothing to do."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from .sched.plan import ModelPlan, ModelResult, StepPlan
from .sched.request import Delta, Outcome
from .sched.scheduler import Scheduler
from .timing import Timings
from .watchdog import Watchdog

log = structlog.get_logger(__name__)

Command = Callable[[], None]
"""A change of the scheduler's state, run on the engine thread between steps, in the order of posting."""

Ended = Callable[[BaseException | None], None]
"""Called last on the engine thread, with what ended it (None: `close`)."""

Deliver = Callable[[list[Outcome], list[Delta]], None]
"""Hands results to the event loop and returns once every task that they woke has parked again."""


class StepRunner(Protocol):
    """Executes the rows of one model (`engine.exec.runner.Runner`, or the tests' oracle)."""

    def execute(self, plan: ModelPlan) -> ModelResult: ...


class EngineLoop:
    """One plain thread around a `Scheduler`.

    `due` asks for a delivery without results: what a step committed may let the event loop's side go on.
    `post` and `notify` may be called from any thread. After a step whose results woke somebody, and after
    waking up from idleness, the next plan waits for `deliver` to return: by then the woken tasks have posted
    what they want next.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runners: Mapping[str, StepRunner],
        deliver: Deliver,
        ended: Ended,
        due: Callable[[], bool],
        timings: Timings,
        watchdog: Watchdog,
    ) -> None:
        self._scheduler = scheduler
        self._runners = runners
        self._deliver = deliver
        self._ended = ended
        self._due = due
        self._timings = timings
        self._watchdog = watchdog
        self._condition = threading.Condition()
        self._commands: deque[Command] = deque()
        self._woken = False
        self._closing = False
        self._idle = True
        self._thread = threading.Thread(target=self._run, name="branchwise-engine", daemon=True)

    def start(self) -> None:
        self._watchdog.start()
        self._thread.start()

    def post(self, command: Command) -> None:
        """Queue a command for the next step boundary."""
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def notify(self) -> None:
        """Work that was deferred may be granted now: plan again."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def close(self) -> None:
        """End after the step in flight; what is pending fails with `EngineClosed`. Does not wait."""
        with self._condition:
            self._closing = True
            self._condition.notify()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while self._wait_for_work():
                self._turn()
            self._apply_commands()
        except BaseException as error:
            failure = error
            log.exception("the engine thread failed")
        self._end(failure)

    def _wait_for_work(self) -> bool:
        """Sleep while nothing can change; false when the loop is to end."""
        was_idle = False
        with self._condition:
            while self._idle and not (self._commands or self._woken or self._closing):
                was_idle = True
                self._condition.wait()
            self._woken = False
            if self._closing:
                return False
        if was_idle:
            # Who woke us may be one of many that are about to post: let them all, so that the batch is full.
            self._deliver([], [])
        return True

    def _turn(self) -> None:
        """One step: everything between two waits."""
        self._scheduler.expire_pins(self._timings.tick())
        self._apply_commands()
        plan = self._scheduler.plan()
        if plan is not None:
            self._execute(plan)
        outcomes, deltas = self._scheduler.take()
        due = self._due()
        if outcomes or deltas or due:
            self._deliver(outcomes, deltas)
        self._idle = plan is None and not outcomes and not due

    def _apply_commands(self) -> None:
        with self._condition:
            commands = list(self._commands)
            self._commands.clear()
        for command in commands:
            command()

    def _execute(self, plan: StepPlan) -> None:
        """Run each model's part. One that raises fails its own requests and no others."""
        results: dict[str, ModelResult] = {}
        failures: dict[str, Exception] = {}
        began = now = self._timings.tick()
        self._watchdog.enter(plan.step_id, began)
        for part in plan.models:
            try:
                results[part.model] = self._runners[part.model].execute(part)
            except Exception as error:
                failures[part.model] = error
                log.warning("a step failed", step=plan.step_id, model=part.model, error=repr(error))
            before, now = now, self._timings.tick()
            if part.model in results:
                self._scheduler.timed(part, now - before)
        self._watchdog.leave()
        if failures:
            self._scheduler.rollback(plan, failures)
        self._scheduler.commit(plan, results)
        self._timings.stepped(began)

    def _end(self, failure: BaseException | None) -> None:
        """Fail what is pending, and tell its callers."""
        try:
            self._scheduler.close()
            self._deliver(*self._scheduler.take())
        except BaseException as error:
            failure = failure or error
            log.exception("the engine could not end its requests in order")
        self._watchdog.stop()
        self._ended(failure)
