"""A step that raises fails the requests with rows in it, and nothing else."""

import pytest
from branchwise.engine.errors import HandleError, StepFailed
from branchwise.engine.protocol import ScoreParams
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.text.stop import Stop
from support.checks import Rig, extend_params
from support.oracle import IdStopWatch, NaiveEngine, oracle_info


def fail(plan: ModelPlan) -> None:
    raise ConnectionError("injected")


def working(plan: ModelPlan) -> None:
    return None


def test_only_the_failed_model_s_requests_fail() -> None:
    rig = Rig(infos=[oracle_info("policy"), oracle_info("prm", head="reward")])
    policy = rig.extend(rig.open([1, 2, 3, 4, 5]), extend_params(4))
    scored = rig.open([1, 2, 3], model="prm")
    reward = rig.score(scored, ScoreParams(reward_at=(2,)))
    rig.runners["prm"].before_step = fail
    rig.run(policy, reward)
    error = rig.outcomes[reward].error
    assert isinstance(error, StepFailed)
    assert isinstance(error.__cause__, ConnectionError)
    assert rig.extension(policy).generated == 4
    rig.runners["prm"].before_step = working
    assert len(rig.score_now(scored, ScoreParams(reward_at=(2,))).rewards) == 1


@pytest.mark.parametrize("at_step", range(5))
def test_the_sequence_goes_on_from_what_was_committed(at_step: int) -> None:
    rig = Rig(num_blocks=60, block_size=4)
    root = rig.open([1, 2, 3, 4, 5])
    children = rig.fork(root, [1, 2, 3])
    requests = [rig.extend(child, extend_params(6)) for child in children]
    for _ in range(at_step):
        rig.step()
    rig.runner.after_writes = fail
    rig.step()
    rig.runner.after_writes = working
    for seed, (child, request) in enumerate(zip(children, requests, strict=True), start=1):
        assert isinstance(rig.outcomes[request].error, StepFailed)
        assert rig.outcomes[request].known == 5 + at_step
        rig.extend_now(child, extend_params(6 - at_step))
        assert rig.tokens(child)[5:] == NaiveEngine.extend([1, 2, 3, 4, 5], seed, extend_params(6), 99)[0]


@pytest.mark.pins("sglang#19035", "vllm#27987", "vllm#23697")
def test_cancelling_one_request_ends_no_other() -> None:
    """Ids are whole numbers that are given once: 1 is not the beginning of 10, and nothing comes under an id
    that ended."""
    rig = Rig(num_blocks=200)
    requests = [rig.extend(rig.open([n, 2, 3], seed=n), extend_params(6)) for n in range(1, 31)]
    rig.step()
    first, *others = requests
    assert any(str(other).startswith(str(first)) for other in others)
    rig.scheduler.cancel(first)
    rig.collect()
    again = rig.extend(rig.open([1, 2, 3], seed=1), extend_params(6))
    rig.scheduler.cancel(first)
    rig.run(*others, again)
    assert rig.extension(first).stop is Stop.CANCELLED
    for n, request in zip([*range(2, 31), 1], [*others, again], strict=True):
        expected = NaiveEngine.extend([n, 2, 3], n, extend_params(6), 99)[0]
        assert list(rig.extension(request).tokens) == expected
    assert rig.pool.owned > 0
    for seq in list(rig.scheduler.family.sequences):
        rig.scheduler.release(seq)
    assert rig.pool.owned == 0


def test_errors_are_not_shared_between_callers() -> None:
    rig = Rig()
    requests = [rig.extend(rig.open([seed, 2, 3])) for seed in (1, 2)]
    rig.runner.before_step = fail
    rig.step()
    first, second = (rig.outcomes[request].error for request in requests)
    assert first is not second


def test_a_stop_rule_that_raises_fails_its_own_request() -> None:
    rig = Rig()
    bad = rig.extend(rig.open([1, 2, 3]), extend_params(4, strings=("not a number",)))
    good = rig.extend(rig.open([1, 2, 3]), extend_params(4))
    rig.run(bad, good)
    assert isinstance(rig.outcomes[bad].error, ValueError)
    assert rig.extension(good).generated == 4


def test_a_stop_watch_that_raises_on_a_token_fails_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    bad = rig.extend(rig.open([1, 2, 3], seed=1), extend_params(4, eos_ids=frozenset({49})))
    good = rig.extend(rig.open([1, 2, 3], seed=1), extend_params(4))
    push = IdStopWatch.push

    def broken(self: IdStopWatch, token: int) -> Stop | None:
        if self._rule.eos_ids:
            raise UnicodeError("broken")
        return push(self, token)

    monkeypatch.setattr(IdStopWatch, "push", broken)
    rig.run(bad, good)
    assert isinstance(rig.outcomes[bad].error, UnicodeError)
    assert rig.extension(good).generated == 4


def test_a_released_sequence_ends_what_runs_on_it() -> None:
    rig = Rig()
    extending, scoring = rig.open([1, 2, 3]), rig.open([1, 2, 3])
    extension = rig.extend(extending, extend_params(100))
    score = rig.score(scoring, ScoreParams(logprobs_from=1))
    rig.scheduler.release(extending)
    rig.scheduler.release(scoring)
    rig.scheduler.release(scoring)
    rig.collect()
    assert rig.extension(extension).stop is Stop.CANCELLED
    assert isinstance(rig.outcomes[score].error, HandleError)
    assert rig.pool.owned == 0


def test_a_stop_string_comes_off_the_sequence_and_was_paid_for() -> None:
    rig = Rig(num_blocks=60)
    plain = rig.extend_now(rig.open([1, 2, 3], seed=8), extend_params(12))
    string = " ".join(map(str, plain.tokens[6:8]))
    seq = rig.open([1, 2, 3], seed=8)
    extension = rig.extend_now(seq, extend_params(12, strings=(string,)))
    assert extension.stop is Stop.STOP
    assert extension.tokens == plain.tokens[:6]
    assert extension.logprobs == plain.logprobs[:6]
    assert extension.generated == 8
    assert rig.tokens(seq) == [1, 2, 3, *extension.tokens]
