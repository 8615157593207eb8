"""Branches on a server: leases, the budget, scores, and what a server is told."""

import anyio
import pytest
from branchwise.engine.errors import CapabilityError, CapacityError, UsageError
from branchwise.engine.protocol import EngineUsage, ScoreParams
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.remote.reading import confidence_of
from branchwise.engine.remote.request import request_seed, salt_of
from branchwise.engine.sampling.detail import Alternatives
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.text.stop import Stop, Until
from hypothesis import given, settings
from hypothesis import strategies as st
from support.openai_server import LOGPROB
from support.remote import PROMPT, TEXT, Purse, extending, run, script, scripted_server, text_of


@pytest.mark.parametrize("lease", [1, 2, 5, 8, 100])
def test_the_text_does_not_depend_on_the_lease(lease: int):
    server = scripted_server(script)

    async def body(engine: RemoteEngine):
        seq, purse = engine.open(PROMPT, seed=1), Purse()
        first = await engine.extend(seq, extending(Until.STEP), purse)
        second = await engine.extend(seq, extending(), purse)
        return first, second, purse

    first, second, purse = run(body, server, lease_tokens=lease)
    assert (text_of(first.tokens), first.stop) == ("ab;", Stop.MARK)
    assert (text_of(second.tokens), second.stop) == ("cd;ef|42$", Stop.EOS)
    assert first.logprobs == (LOGPROB,) * 3
    assert purse.paid == server.written == len(TEXT)
    assert all(request["max_tokens"] <= lease for request in server.requests)


@given(budget=st.integers(0, 14), lease=st.integers(1, 9), branches=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_the_budget_is_spent_to_the_last_token_and_not_passed(budget: int, lease: int, branches: int):
    """However many branches draw from it at once, and though each holds more than it needs."""
    server, purse = scripted_server(script), Purse(budget)

    async def body(engine: RemoteEngine):
        root = engine.open(PROMPT, seed=1)
        stops: list[Stop] = []

        async def write(seq) -> None:
            stops.append((await engine.extend(seq, extending(), purse)).stop)

        async with anyio.create_task_group() as group:
            for seq in engine.fork(root, range(branches)):
                group.start_soon(write, seq)
        return stops

    stops = run(body, server, lease_tokens=lease)
    wanted = branches * len(TEXT)
    assert purse.paid == server.written == min(budget, wanted)
    assert purse.left == budget - purse.paid
    assert (Stop.BUDGET in stops) == (budget < wanted)


def test_a_branch_has_its_own_seed_at_every_position():
    def by_seed(text: str, seed: int) -> str:
        return "abcdefgh"[seed % 8] + "x" * 8

    server = scripted_server(by_seed)

    async def body(engine: RemoteEngine):
        root = engine.open(PROMPT, seed=1)
        sampled = extending(max_tokens=6, sampling=SamplingParams())
        return [
            text_of((await engine.extend(seq, sampled, Purse())).tokens)
            for seq in engine.fork(root, [7, 8, 7])
        ]

    first, second, again = run(body, server, lease_tokens=2, script=by_seed)
    assert first == again != second
    seeds = [request["seed"] for request in server.requests]
    assert seeds[:3] == [request_seed(7, len(PROMPT) + place) for place in (0, 2, 4)]
    assert len(set(seeds)) == 6


def test_namespaces_are_kept_apart_by_a_salt_that_does_not_name_them():
    server = scripted_server(script)

    async def body(engine: RemoteEngine):
        figures = []
        for namespace in ("", "alice", "alice", "bob"):
            usage = EngineUsage()
            seq = engine.open(PROMPT, seed=1, namespace=namespace, usage=usage)
            await engine.extend(seq, extending(max_tokens=2), Purse())
            figures.append(usage.cached_tokens)
        return figures

    assert run(body, server) == [0, 0, 1, 0]
    salts = [request.get("cache_salt") for request in server.requests]
    assert salts == [None, salt_of("alice"), salt_of("alice"), salt_of("bob")]
    assert "alice" not in str(salts)


def test_what_the_server_read_is_counted_as_it_says():
    server, usage = scripted_server(script), EngineUsage()

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1, usage=usage)
        await engine.extend(seq, extending(), Purse())

    run(body, server, lease_tokens=4)
    read = sum(len(request["prompt"]) for request in server.requests)
    assert usage.cached_tokens + usage.prefill_tokens + usage.recomputed_tokens == read
    assert usage.prefill_tokens == len(PROMPT) + 2
    assert usage.decode_tokens == len(TEXT)
    assert "kv_peak_tokens" in usage.unknown
    assert "cached_tokens" not in usage.unknown


def test_scores_are_the_server_s_and_are_charged_as_rows_and_heads():
    server, purse = scripted_server(script), Purse()

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        engine.append(seq, [ord(c) for c in "abc"])
        one = await engine.score(seq, ScoreParams(logprobs_from=2), purse)
        again = await engine.score(seq, ScoreParams(logprobs_from=2), purse)
        return one, again

    one, again = run(body, server)
    assert one == again
    assert one.logprobs == (LOGPROB,) * 3
    (work,) = purse.committed
    assert (work.start, work.rows, work.heads, work.tokens) == (0, 4, (1, 2, 3), 0)


def test_siblings_pay_once_for_the_rows_before_their_fork():
    server, purse = scripted_server(script), Purse()

    async def body(engine: RemoteEngine):
        root = engine.open(PROMPT, seed=1)
        for seq in engine.fork(root, range(3)):
            await engine.extend(seq, extending(max_tokens=1), purse)

    run(body, server)
    assert [work.rows for work in purse.committed] == [2, 0, 0]
    assert [work.heads for work in purse.committed] == [(1,), (), ()]


def test_a_server_without_ids_is_sent_text_and_read_as_text():
    server = scripted_server(script, ids=False, extensions=False, most_logprobs=5)
    plain = Dialect(ids_in=False, ids_out=False, extensions=False, most_alternatives=5, scores=False)

    async def body(engine: RemoteEngine):
        seq, purse = engine.open(PROMPT, seed=1), Purse()
        step = await engine.extend(seq, extending(Until.STEP), purse)
        rest = await engine.extend(seq, extending(), purse)
        with pytest.raises(CapabilityError):
            await engine.extend(seq, extending(sampling=SamplingParams(top_k=3)), purse)
        with pytest.raises(CapabilityError):
            await engine.score(seq, ScoreParams(logprobs_from=1), purse)
        return step, rest, engine.capabilities, engine.notes

    step, rest, can, notes = run(body, server, dialect=plain)
    assert (text_of(step.tokens), step.stop) == ("ab;", Stop.MARK)
    assert (text_of(rest.tokens), rest.stop) == ("cd;ef|42$", Stop.EOS)
    assert not can.score_logprob
    assert any("sent as text" in note for note in notes)
    assert server.requests[0]["prompt"] == "Q:"


def test_what_a_server_cannot_do_is_refused_before_anything_is_asked():
    server = scripted_server(script)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        for sampling in (
            SamplingParams(presence_penalty=1.0),
            SamplingParams(processed_logprobs=True),
            SamplingParams(stats_top_k=21),
        ):
            with pytest.raises(CapabilityError):
                await engine.extend(seq, extending(sampling=sampling), Purse())
        with pytest.raises(CapabilityError, match="reward"):
            await engine.score(seq, ScoreParams(reward_at=(1,)), Purse())
        with pytest.raises(UsageError):
            engine.open([], seed=1)
        with pytest.raises(UsageError):
            engine.open(PROMPT, seed=1, model="prm")

    run(body, server)
    assert not server.requests


def test_a_sampled_token_outside_the_top_k_does_not_change_the_confidence():
    """Servers list it beside the k most likely ones."""
    top = Alternatives(ids=(4, 2), logprobs=(-1.0, -1.1))
    beside = Alternatives(ids=(4, 2, 7), logprobs=(-1.0, -1.1, -12.0))
    assert confidence_of(beside, 2).confidence == confidence_of(top, 2).confidence == 1.05


def test_statistics_are_the_confidence_alone():
    server = scripted_server(script)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        sampling = SamplingParams(stats_top_k=3, top_logprobs=2)
        return await engine.extend(seq, extending(max_tokens=2, sampling=sampling), Purse())

    extension = run(body, server)
    assert [stats.confidence for stats in extension.stats] == [pytest.approx(1.5)] * 2
    assert all(stats.entropy != stats.entropy for stats in extension.stats)
    assert extension.alternatives[0].ids == (ord("a"), ord("b"))


def test_the_context_ends_an_extension_and_takes_no_more():
    server = scripted_server(script)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        with pytest.raises(CapacityError, match="8 tokens exceed the context of 'policy': 7 positions"):
            engine.append(seq, [1] * 6)
        with pytest.raises(CapacityError):
            engine.open([1] * 8, seed=1)
        return await engine.extend(engine.open(PROMPT, seed=1), extending(), Purse())

    extension = run(body, server, context=7)
    assert (text_of(extension.tokens), extension.stop) == ("ab;cd", Stop.CONTEXT)
