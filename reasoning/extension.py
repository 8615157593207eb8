"""How a branch is extended: admission, the request to the engine, and what comes back."""

from typing import TYPE_CHECKING

import anyio.lowlevel
import msgspec

from ..engine.drafting.params import Speculate
from ..engine.protocol import ExtendParams, Extension
from ..engine.sampling.params import SamplingParams
from ..engine.text.stop import Stop, StopRule, Until
from ..strategies.base import Step
from .budget import Budget
from .caps import caps_in_force
from .clock import Ticket, TicketKind
from .graph import Node, NodeState
from .meter import BranchMeter
from .steps import step_ends
from .tools.box import ToolBox, note_returned
from .track import Track

if TYPE_CHECKING:
    from .branch import SearchBranch

UNFINISHED = "left unfinished"
"""Why a branch was pruned whose work was cancelled: the same whether its own task or the block around it
hears of that first."""

_CUT = (Stop.BUDGET, Stop.CANCELLED, Stop.CONTEXT)


class Leg(msgspec.Struct, frozen=True):
    """What stays the same over the requests that one `extend` makes."""

    sampling: SamplingParams
    model: str
    strings: tuple[str, ...]
    speculate: Speculate | None


async def extend_branch(branch: "SearchBranch", until: Until, max_tokens: int | None, leg: Leg) -> Step:
    """Extend as `Branch.extend` says, once the budget lets the branch start."""
    run = branch.run
    run.touch()
    limit = _limit(branch, until, max_tokens, leg.model, answering=branch.answering)
    if limit <= 0:
        await anyio.lowlevel.checkpoint()
        return Step(tokens=(), text="", stop=Stop.CONTEXT)
    caps = caps_in_force()
    await run.admission.enter(branch.path, until, limit, answering=branch.draws_on_reserve, caps=caps)
    run.touch()
    ended_by_itself = False
    try:
        step = await _extend_phases(branch, until, limit, max_tokens, leg)
        if run.tools is not None:
            step = await _answer_calls(branch, step, until, max_tokens, leg, run.tools)
        ended_by_itself = step.stop not in _CUT
        return step
    finally:
        run.admission.leave(branch.path, ended_by_itself=ended_by_itself)


async def _extend_phases(
    branch: "SearchBranch", until: Until, limit: int, max_tokens: int | None, leg: Leg
) -> Step:
    """Thinking and answer are two requests: the answer alone may use the reserve."""
    if until not in (Until.ANSWER, Until.END) or branch.answering:
        return await _request(branch, until, limit, leg)
    first = await _request(branch, Until.THINK, limit, leg)
    if first.stop is not Stop.THINK_END or not branch.live:
        return first
    left = None if max_tokens is None else max_tokens - first.generated
    limit = _limit(branch, until, left, leg.model, answering=True)
    if limit <= 0:
        return first
    return _joined(first, await _request(branch, until, limit, leg))


async def _answer_calls(
    branch: "SearchBranch", step: Step, until: Until, max_tokens: int | None, leg: Leg, tools: ToolBox
) -> Step:
    """Run the calls that `step` ended with, append their results, and go on until it ends without one. A
    single step ends behind the results."""
    while branch.live and (calls := tools.calls_of(branch, step.stop)):
        if tools.returns(calls):
            branch.closed = True
            note_returned(branch, calls)
            return step
        branch.closed, branch.trail.nodes[-1].state = False, NodeState.LIVE
        step = _joined(step, await tools.run(branch, calls))
        if step.stop is not Stop.MARK or until is Until.STEP:
            return step
        left = None if max_tokens is None else max_tokens - step.generated
        limit = _limit(branch, until, left, leg.model, answering=branch.answering)
        if limit <= 0:
            return msgspec.structs.replace(step, stop=Stop.LENGTH)
        step = _joined(step, await _extend_phases(branch, until, limit, left, leg))
    return step


def _joined(first: Step, second: Step) -> Step:
    """One step of both; the log-probabilities are those of sampled tokens."""
    return Step(
        tokens=first.tokens + second.tokens,
        text=first.text + second.text,
        stop=second.stop,
        logprobs=first.logprobs + second.logprobs,
        generated=first.generated + second.generated,
        stats=first.stats + second.stats,
        alternatives=first.alternatives + second.alternatives,
    )


def _limit(
    branch: "SearchBranch", until: Until, max_tokens: int | None, model: str, *, answering: bool
) -> int:
    """Tokens that the extension may take: room in the context, the step's length, what the caller allows, and
    what is left of the run's longest candidate, of which thinking leaves a part to the answer."""
    run = branch.run
    limits = [run.model(model).max_model_len - len(branch.prompt) - len(branch.tokens)]
    if until is Until.STEP:
        limits.append(run.tokens_per_step or run.step_tokens)
    if max_tokens is not None:
        limits.append(max_tokens)
    if run.max_tokens is not None and not branch.aside:
        kept = 0 if answering else Budget(tokens=run.max_tokens).reserve(thinks=True)
        limits.append(run.max_tokens - kept - len(branch.tokens))
    return min(limits)


async def _request(branch: "SearchBranch", until: Until, limit: int, leg: Leg) -> Step:
    """One `extend` of the engine, in the clock's order."""
    run = branch.run
    sequence = branch.sequence(leg.model)
    branch.closed, branch.calls = False, ()
    with run.ledger.lock:
        run.kv.use(branch)
        ticket = run.clock.begin(branch.path, TicketKind.EXTEND)
        run.track_holder(branch)
        node = branch.trail.begin(branch, "step")
    track = Track(branch, branch.trail.nodes[:-1], node)
    meter = BranchMeter(run, ticket, track, caps_in_force(), answering=branch.draws_on_reserve)
    constraint = None if run.grammar is None else run.grammar.constraint(branch)
    if until is Until.ANSWER and (constraint is not None or run.problem.prompt is not None):
        until = Until.END  # its own end is the answer's: a box inside a string, or a raw text, is none
    tools = run.tools if run.tools is not None and run.tools.serves(branch) else None
    ends = run.stop if branch.draws_on_reserve and branch.model == run.policy else ()
    rule = StopRule(
        until=until,
        eos_ids=run.models[leg.model].profile.stop_ids | (tools.eos_ids if tools else frozenset()),
        strings=leg.strings + (tools.strings if tools else ()) + ends,
        mark=run.step_mark,
        tokens_per_step=run.tokens_per_step,
    )
    params = ExtendParams(
        sampling=leg.sampling,
        stop=rule,
        max_tokens=limit,
        order=branch.path,
        speculate=leg.speculate,
        priority=run.priority,
        constraint=constraint,
    )
    phase = branch.told.phase
    try:
        extension = await run.backend.extend(sequence, params, meter, branch.told.listener(rule))
        await run.clock.finish(ticket)
    except BaseException as error:
        _abandon(branch, ticket, node, error)
        raise
    run.touch()
    step = _take(branch, extension, track, leg.model, phase)
    if step.stop is Stop.STOP and ends and rule.strings == ends:
        _close(branch)
    return step


def _abandon(branch: "SearchBranch", ticket: Ticket, node: Node, error: BaseException) -> None:
    """The request was cancelled or failed: what was granted and executed stays charged to its node."""
    run = branch.run
    with run.ledger.lock:
        run.clock.drop(ticket)
        run.kv.resize(node, -node.length)
    failed = isinstance(error, Exception)
    reason = f"failed: {error}" if failed else UNFINISHED
    if node.state is NodeState.LIVE:
        node.state, node.reason = NodeState.PRUNED, reason
    node.stop = str(Stop.CANCELLED)
    branch.prune(reason)


def _close(branch: "SearchBranch") -> None:
    """What stands there is a whole candidate."""
    branch.closed = True
    if branch.live:
        branch.trail.nodes[-1].state = NodeState.FINISHED


def _take(branch: "SearchBranch", extension: Extension, track: Track, model: str, phase: str) -> Step:
    """Put the engine's result on the branch: tokens, steps, phase. `phase` is the one that wrote them."""
    run = branch.run
    tokens = extension.tokens
    with run.ledger.lock:
        if extension.generated == 0 and not tokens:
            branch.trail.discard(branch)
            steps = []
        else:
            ends = step_ends(branch, tokens) or [0]
            steps = branch.trail.end_extension(extension, ends, track)
    branch.generated_on(model)
    if extension.stop is Stop.THINK_END:
        branch.phases.answer_start = len(branch.tokens)
    if extension.stop in (Stop.EOS, Stop.ANSWER):
        _close(branch)
    branch.told.settle(phase)
    branch.emit_steps(steps)
    return Step(
        tokens=tokens,
        text=branch.tokenizer.decode(tokens),
        stop=extension.stop,
        logprobs=extension.logprobs,
        generated=extension.generated,
        stats=extension.stats,
        alternatives=extension.alternatives,
    )
