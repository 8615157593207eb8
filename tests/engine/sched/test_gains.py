"""What an extension gained, where a part of a token stays behind a dropped stop string."""

from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.detail import Alternatives, TokenDetail, TokenStats
from branchwise.engine.sched.gains import Gains
from branchwise.engine.sched.plan import Drawn
from branchwise.engine.text.stop import Stop


def _detail(number: int) -> TokenDetail:
    return TokenDetail(-0.1 * number, Alternatives((number,), (-1.0,)), TokenStats(number, number, number))


def _gains(count: int) -> Gains:
    gains = Gains()
    for number in range(count):
        gains.add(Drawn(SeqId(1), 40 + number, -float(number), _detail(number)))
    return gains


def test_the_first_id_of_a_partly_kept_token_carries_the_whole() -> None:
    """Of five tokens two stay, and of the third three ids that spell its beginning."""
    found = _gains(5).extension((40, 41, 7, 8, 9), 2, Stop.STOP)
    assert found.logprobs == (0.0, -1.0, -2.0, 0.0, 0.0)
    assert found.processed_logprobs == (0.0, -0.1, -0.2, 0.0, 0.0)
    assert [one.entropy for one in found.stats] == [0, 1, 2, 2, 2]
    assert [one.ids for one in found.alternatives] == [(0,), (1,), (2,), (2,), (2,)]
    assert found.generated == 5


def test_whole_tokens_keep_what_is_theirs() -> None:
    found = _gains(5).extension((40, 41, 42), 3, Stop.STOP)
    assert found.logprobs == (0.0, -1.0, -2.0)
    assert len(found.stats) == len(found.processed_logprobs) == 3
    assert _gains(2).extension((), 0, Stop.STOP).stats == ()
