"""How meters are asked: once per position and branch path, all or nothing, and told what became of it."""

import pytest
from branchwise.engine.protocol import Extension, ScoreParams, Verdict, Work, WorkKind
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.text.stop import Stop
from support.checks import RecordingMeter, Rig, extend_params
from support.oracle import NaiveEngine, oracle_info

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def fail(plan: ModelPlan) -> None:
    raise ConnectionError("injected")


def test_the_asks_of_one_extension() -> None:
    rig = Rig(block_size=4)
    meter = RecordingMeter()
    rig.extend_now(rig.open(PROMPT), extend_params(3), meter)
    assert meter.granted == [
        Work(model="policy", kind=WorkKind.PREFILL, start=0, rows=10, heads=(9,), tokens=1),
        Work(model="policy", kind=WorkKind.DECODE, start=10, rows=1, heads=(10,), tokens=1),
        Work(model="policy", kind=WorkKind.DECODE, start=11, rows=1, heads=(11,), tokens=1),
    ]
    assert meter.committed == meter.granted
    assert meter.refunded == []


@pytest.mark.parametrize("chunk", [1, 3, 7, 10])
def test_commits_come_chunk_by_chunk_and_add_up(chunk: int) -> None:
    rig = Rig(block_size=4, limits=StepLimits(max_chunk_rows=chunk))
    meter = RecordingMeter()
    rig.extend_now(rig.open(PROMPT), extend_params(1), meter)
    assert len(meter.granted) == 1
    assert meter.spent_rows() == list(range(10))
    assert meter.balance() == (0, 0, 0)
    assert [work.tokens for work in meter.committed][-1] == 1
    assert meter.committed[-1].heads == (9,)


def test_no_tokens_left_wastes_no_prefill() -> None:
    rig = Rig()
    extension = rig.extend_now(rig.open(PROMPT), extend_params(3), RecordingMeter(tokens=0))
    assert (extension.tokens, extension.stop, extension.generated) == ((), Stop.BUDGET, 0)
    assert rig.runner.rows == 0


def test_the_budget_is_spent_to_the_last_token_and_no_further() -> None:
    rig = Rig(num_blocks=400)
    meter = RecordingMeter(tokens=37)
    root = rig.open(PROMPT)
    requests = [rig.extend(child, extend_params(10), meter) for child in rig.fork(root, range(8))]
    rig.run(*requests)
    assert meter.tokens_left == 0
    assert sum(rig.extension(request).generated for request in requests) == 37
    assert rig.runner.samples.total() == 37
    assert Stop.BUDGET in {rig.extension(request).stop for request in requests}


def test_a_deferred_request_waits_and_is_asked_again() -> None:
    rig = Rig()
    meter = RecordingMeter()
    meter.verdicts = [Verdict.DEFER, Verdict.DEFER]
    request = rig.extend(rig.open(PROMPT), extend_params(2), meter)
    assert rig.step() is None
    assert rig.step() is None
    assert rig.step() is not None
    rig.run(request)
    assert rig.extension(request).generated == 2


def test_a_request_that_must_yield_gives_its_blocks_back_and_goes_on_later() -> None:
    rig = Rig(block_size=4)
    meter = RecordingMeter()
    seq = rig.open(PROMPT, seed=4)
    request = rig.extend(seq, extend_params(6), meter)
    rig.step()
    rig.step()
    meter.verdicts = [Verdict.YIELD, Verdict.DEFER]
    rig.step()
    assert rig.blocks(seq) == ()
    assert rig.pool.owned == 0
    rig.run(request)
    assert list(rig.extension(request).tokens) == NaiveEngine.extend(PROMPT, 4, extend_params(6), 99)[0]
    assert meter.spent_rows() == list(range(len(PROMPT) + 5))


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_cancelling_before_the_last_chunk_refunds_the_rest(steps: int) -> None:
    rig = Rig(block_size=4, limits=StepLimits(max_chunk_rows=4))
    meter = RecordingMeter()
    seq = rig.open(PROMPT)
    request = rig.extend(seq, extend_params(3), meter)
    for _ in range(steps):
        rig.step()
    rig.scheduler.cancel(request)
    rig.collect()
    assert rig.extension(request).stop is Stop.CANCELLED
    assert meter.spent_rows() == list(range(4 * steps))
    assert meter.balance() == (0, 0, 0)
    again = RecordingMeter()
    rig.extend_now(seq, extend_params(1), again)
    assert again.spent_rows() == list(range(4 * steps, 10))


def test_a_failed_step_is_refunded_and_asked_for_again() -> None:
    rig = Rig(block_size=4)
    meter = RecordingMeter()
    seq = rig.open(PROMPT)
    request = rig.extend(seq, extend_params(3), meter)
    rig.runner.after_writes = fail
    rig.step()
    rig.runner.after_writes = lambda plan: None
    assert rig.outcomes[request].error is not None
    assert meter.committed == []
    assert meter.balance() == (0, 0, 0)
    rig.extend_now(seq, extend_params(3), meter)
    assert meter.spent_rows() == list(range(12))


def test_preemption_parking_and_the_cache_are_not_charged() -> None:
    rig = Rig(block_size=4)
    meters = [RecordingMeter(), RecordingMeter()]
    for meter in meters:
        seq = rig.open(PROMPT)
        rig.extend_now(seq, extend_params(2), meter)
        rig.scheduler.park(seq)
        rig.extend_now(seq, extend_params(2), meter)
        assert meter.spent_rows() == list(range(13))
    assert meters[0].granted == meters[1].granted


def test_a_branch_that_samples_the_same_row_again_pays_only_the_token() -> None:
    rig = Rig(block_size=4)
    meter = RecordingMeter()
    seq = rig.open(PROMPT)
    rig.extend_now(seq, extend_params(1), meter)
    rig.scheduler.truncate(seq, len(PROMPT))
    rig.extend_now(seq, extend_params(1), meter)
    last = meter.committed[-1]
    assert (last.rows, last.heads, last.tokens) == (0, (), 1)


def test_scores_are_granted_whole_or_refused() -> None:
    rig = Rig(block_size=4, limits=StepLimits(max_chunk_rows=3))
    meter = RecordingMeter()
    seq = rig.open(PROMPT)
    rig.score_now(seq, ScoreParams(logprobs_from=6), meter)
    assert meter.granted == [
        Work(model="policy", kind=WorkKind.SCORE, start=0, rows=9, heads=(5, 6, 7, 8), tokens=0)
    ]
    assert meter.spent_rows() == list(range(9))
    assert sorted(head for work in meter.committed for head in work.heads) == [5, 6, 7, 8]
    rig.score_now(seq, ScoreParams(logprobs_from=6), meter)
    assert len(meter.granted) == 1  # nothing new
    rig.scheduler.append(seq, [1, 2])
    meter.verdicts = [Verdict.REFUSED]
    scores = rig.score_now(seq, ScoreParams(logprobs_from=10), meter)
    assert scores.refused
    assert scores.logprobs == ()


def test_rewards_are_asked_for_at_their_positions_only() -> None:
    rig = Rig(infos=[oracle_info("prm", head="reward")])
    meter = RecordingMeter()
    seq = rig.open(PROMPT, model="prm")
    scores = rig.score_now(seq, ScoreParams(reward_at=(7, 2, 7)), meter)
    assert list(scores.rewards) == NaiveEngine.rewards(PROMPT, (7, 2, 7))
    assert meter.granted == [Work(model="prm", kind=WorkKind.SCORE, start=0, rows=8, heads=(2, 7))]


def test_a_payer_that_goes_away_leaves_the_rest_to_its_sibling() -> None:
    rig = Rig(block_size=4, limits=StepLimits(max_chunk_rows=4))
    first_meter, second_meter = RecordingMeter(), RecordingMeter()
    root = rig.open(PROMPT)
    first, second = rig.fork(root, [1, 2])
    request = rig.extend(first, extend_params(2), first_meter)
    other = rig.extend(second, extend_params(2), second_meter)
    rig.step()
    rig.scheduler.cancel(request)
    rig.run(other)
    assert first_meter.spent_rows() == [0, 1, 2, 3]
    assert second_meter.spent_rows() == [4, 5, 6, 7, 8, 9, 10]
    assert first_meter.balance() == second_meter.balance() == (0, 0, 0)
    assert rig.runner.rows == 11


def test_a_meter_that_raises_fails_its_own_request_only() -> None:
    class Broken(RecordingMeter):
        def grant(self, work: Work) -> Verdict:
            raise LookupError("broken meter")

    rig = Rig()
    bad = rig.extend(rig.open(PROMPT), extend_params(2), Broken())
    good = rig.extend(rig.open(PROMPT), extend_params(2))
    rig.run(bad, good)
    assert isinstance(rig.outcomes[bad].error, LookupError)
    assert isinstance(rig.outcomes[good].value, Extension)


def test_a_request_whose_members_defer_does_not_lock_the_pool() -> None:
    """Deferred requests hold the whole pool; the one that may run gets it."""
    rig = Rig(num_blocks=9, block_size=4, max_model_len=32)
    meters = [RecordingMeter() for _ in range(3)]
    holders = [rig.open([token] * 9, seed=token) for token in (1, 2)]
    requests = [
        rig.extend(seq, extend_params(12), meter) for seq, meter in zip(holders, meters[:2], strict=True)
    ]
    for _ in range(4):
        rig.step()
    for meter in meters[:2]:
        meter.verdicts = [Verdict.DEFER] * 40
    late = rig.extend(rig.open([3] * 14, seed=3), extend_params(4), meters[2])
    rig.run(late, steps=40)
    for meter in meters:
        meter.verdicts.clear()
    rig.run(*requests)
    for token, request in zip((1, 2), requests, strict=True):
        expected = NaiveEngine.extend([token] * 9, token, extend_params(12), 32)[0]
        assert list(rig.extension(request).tokens) == expected


def test_a_grant_that_counted_on_a_sibling_s_rows_is_asked_for_again_when_they_are_lost() -> None:
    """The sibling pays the prompt; there is no room for this one yet; then the sibling's step fails."""
    rig = Rig(num_blocks=8, block_size=4, max_model_len=20)
    meters = [RecordingMeter(), RecordingMeter()]
    root = rig.open(PROMPT)
    first, second = rig.fork(root, [1, 2])
    rig.scheduler.release(root)
    busy = rig.open([9] * 7)
    rig.extend(busy, extend_params(1, order=(0,)))
    failing = rig.extend(first, extend_params(2, order=(1,)), meters[0])
    waiting = rig.extend(second, extend_params(2, order=(1,)), meters[1])
    rig.runner.before_step = fail
    rig.step()
    rig.runner.before_step = lambda plan: None
    assert rig.outcomes[failing].error is not None
    assert [(work.rows, work.tokens) for work in meters[1].granted] == [(0, 1)]
    rig.run(waiting)
    assert meters[0].committed == []
    assert meters[1].spent_rows() == list(range(len(PROMPT) + 1))
    assert meters[0].balance() == meters[1].balance() == (0, 0, 0)
