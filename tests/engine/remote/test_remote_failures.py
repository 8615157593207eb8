"""Servers that fail, are busy or are left: retries, failover, affinity and cancelling."""

import anyio
import msgspec
import pytest
from branchwise.engine.errors import HandleError, ServerFailed
from branchwise.engine.remote.affinity import preference, root_key
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.text.stop import Stop, Until
from hypothesis import given, settings
from hypothesis import strategies as st
from support.openai_server import Fault
from support.remote import FAST, PROMPT, TEXT, Purse, extending, run, script, scripted_server, text_of


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_retry_goes_on_from_the_last_token_and_charges_nothing_twice(cuts: list[int]):
    """A cut behind any token, or (-1) a refused connection."""
    server, purse = scripted_server(script), Purse()
    server.faults.extend(Fault(status=503) if cut < 0 else Fault(after=cut) for cut in cuts)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        return await engine.extend(seq, extending(), purse)

    patient = msgspec.structs.replace(FAST, attempts=len(cuts) + 1)
    extension = run(body, server, retry=patient)
    assert (text_of(extension.tokens), extension.stop, extension.generated) == (TEXT, Stop.EOS, len(TEXT))
    assert purse.paid == len(TEXT)
    rows = [work.start + row for work in purse.committed for row in range(work.rows)]
    assert rows == sorted(set(rows))


def test_a_server_that_stays_away_fails_the_branch_with_its_reason_and_refunds():
    server, purse = scripted_server(script), Purse(50)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        await engine.extend(seq, extending(Until.STEP), purse)
        server.kill()
        with pytest.raises(ServerFailed) as caught:
            await engine.extend(seq, extending(), purse)
        return str(caught.value)

    said = run(body, server)
    assert server.url in said
    assert "given up after 3 tries" in said
    assert purse.left == 50 - purse.paid == 50 - len("ab;")


def test_a_refusal_is_not_tried_again():
    server = scripted_server(script)
    server.faults.append(Fault(status=400))

    async def body(engine: RemoteEngine):
        with pytest.raises(ServerFailed, match="400 injected"):
            await engine.extend(engine.open(PROMPT, seed=1), extending(), Purse())

    run(body, server)
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again_when_it_says():
    server = scripted_server(script)
    server.faults.append(Fault(status=429, retry_after="0.2"))

    async def body(engine: RemoteEngine):
        began = anyio.current_time()
        await engine.extend(engine.open(PROMPT, seed=1), extending(), Purse())
        return anyio.current_time() - began

    assert run(body, server) >= 0.2
    assert text_of(server.requests[0]["prompt"]) == text_of(server.requests[1]["prompt"]) == "Q:"


def test_another_server_takes_over_and_the_first_is_passed_over():
    one, other = scripted_server(script), scripted_server(script)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        await engine.extend(seq, extending(Until.STEP), Purse())
        used, spare = (one, other) if one.requests else (other, one)
        used.kill()
        assert text_of((await engine.extend(seq, extending(), Purse())).tokens) == "cd;ef|42$"
        tried = len(spare.requests)
        await engine.extend(engine.open(PROMPT, seed=1), extending(), Purse())
        return len(spare.requests) > tried

    assert run(body, one, other)


def test_all_branches_of_a_root_go_to_the_server_that_its_prompt_prefers():
    servers = [scripted_server(script) for _ in range(3)]

    async def body(engine: RemoteEngine):
        for root in range(12):
            prompt = [*PROMPT[:-1], 65 + root]
            for seq in engine.fork(engine.open(prompt, seed=1), range(3)):
                await engine.extend(seq, extending(max_tokens=2), Purse())

    run(body, *servers)
    urls = [server.url for server in servers]
    for server in servers:
        for request in server.requests:
            assert preference(root_key("", request["prompt"][: len(PROMPT)]), urls)[0] == server.url
    assert sum(len(server.requests) for server in servers) == 12 * 3


def test_cancelling_closes_the_request_and_keeps_what_came():
    server, purse = scripted_server(script, delay_s=0.01), Purse(20)

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        came = anyio.Event()

        async def write() -> None:
            await engine.extend(seq, extending(), purse, lambda tokens: came.set())

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await came.wait()
            group.cancel_scope.cancel()
        await server.idle()
        return text_of(engine._sequences[seq].tokens)

    left = run(body, server)
    assert server.dropped == 1
    assert purse.paid == len(left) - len(PROMPT) >= 1
    assert purse.left == 20 - purse.paid
    assert server.written < len(TEXT)


def test_releasing_a_branch_that_is_written_closes_its_request():
    server = scripted_server(script, delay_s=0.01)

    async def body(engine: RemoteEngine):
        seq, purse = engine.open(PROMPT, seed=1), Purse()
        came = anyio.Event()

        async def write() -> None:
            extension = await engine.extend(seq, extending(), purse, lambda tokens: came.set())
            assert extension.stop is Stop.CANCELLED

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await came.wait()
            with pytest.raises(HandleError):
                engine.fork(seq, [1])
            engine.release(seq)
        await server.idle()

    run(body, server)
    assert server.dropped == 1


def test_a_step_mark_inside_a_text_ends_the_request_where_the_server_cannot_know_it():
    """A server that tells no ids is given no stops: the client leaves its stream, and pays for what came."""
    server, purse = scripted_server(script, delay_s=0.001), Purse()

    async def body(engine: RemoteEngine):
        seq = engine.open(PROMPT, seed=1)
        return await engine.extend(seq, extending(strings=("d;",)), purse)

    extension = run(body, server, dialect=Dialect(most_alternatives=20, ids_out=False))
    assert (text_of(extension.tokens), extension.stop) == ("ab;c", Stop.STOP)
    assert extension.generated == purse.paid == len("ab;cd;")
    assert server.dropped == 1
