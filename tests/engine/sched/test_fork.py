"""Fork: the prompt is computed once, every block is shared until it is written, nothing is computed again."""

from collections import Counter

import pytest
from branchwise.engine.protocol import EngineUsage, ScoreParams, SeqId
from branchwise.engine.sched.scheduler import StepLimits
from support.checks import RecordingMeter, Rig, extend_params
from support.oracle import NaiveEngine


def prompt(length: int) -> list[int]:
    return [(position * 7) % 49 + 1 for position in range(length)]


def holders(rig: Rig) -> Counter[int]:
    """Tables that hold each block."""
    return Counter(block for seq in rig.scheduler.family.sequences.values() for block in seq.table.blocks)


def assert_refs_are_holders(rig: Rig) -> None:
    counted = holders(rig)
    assert all(rig.pool.refs(block) == count for block, count in counted.items())


@pytest.mark.pins("vllm#39647", "vllm#13421")
@pytest.mark.parametrize("length", [400, 403])
@pytest.mark.parametrize("keep_root", [False, True])
def test_best_of_64_computes_the_prompt_once(length: int, keep_root: bool) -> None:
    rig = Rig(num_blocks=700, block_size=16)
    usage = EngineUsage()
    root = rig.open(prompt(length), usage=usage)
    children = rig.fork(root, range(100, 164))
    if not keep_root:
        rig.scheduler.release(root)
    requests = [rig.extend(child, extend_params(20)) for child in children]
    while rig.step() is not None:
        assert_refs_are_holders(rig)
        shared = rig.blocks(children[0])[: length // 16]
        if shared:
            assert {rig.pool.refs(block) for block in shared} == {64 + keep_root}
    for child, request in zip(children, requests, strict=True):
        seed = rig.scheduler.family.sequences[child].seed
        expected = NaiveEngine.extend(prompt(length), seed, extend_params(20), 4096)
        got = rig.extension(request)
        assert (list(got.tokens), list(got.logprobs), got.stop) == expected
    assert usage.prefill_tokens == length
    assert usage.decode_tokens == 64 * 19
    assert usage.recomputed_tokens == usage.cached_tokens == 0
    assert rig.runner.rows == length + 64 * 19
    # the shared tail is copied once per writer but the last, who writes in place if nobody else holds it
    copies = 0 if length % 16 == 0 else 63 + keep_root
    assert len(rig.runner.copies) == usage.copied_blocks == copies
    for child in [*children, *([root] if keep_root else [])]:
        rig.scheduler.release(child)
    rig.scheduler.check()
    assert rig.pool.owned == 0
    assert usage.kv_tokens == usage.kv_unshared_tokens == 0
    assert usage.kv_unshared_peak_tokens >= 64 * (length + 19)


@pytest.mark.pins("vllm#39647")
def test_children_that_finish_in_any_order_leave_the_pool_whole() -> None:
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        rig = Rig(block_size=4)
        root = rig.open(prompt(10))
        children = rig.fork(root, range(4))
        rig.run(*[rig.extend(child, extend_params(5)) for child in children])
        for index in order:
            rig.scheduler.release(children[index])
            rig.scheduler.check()
        rig.scheduler.release(root)
        rig.scheduler.check()
        assert rig.pool.owned == 0


def test_children_of_a_branch_that_stands_in_mid_text_share_its_open_row() -> None:
    """The last token of a branch has no KV yet: one row, sampled once per child."""
    rig = Rig(block_size=4)
    usage = EngineUsage()
    root = rig.open(prompt(9), usage=usage)
    rig.run(rig.extend(root, extend_params(4)))
    rows = rig.runner.rows
    children = rig.fork(root, range(10, 18))
    requests = [rig.extend(child, extend_params(1)) for child in children]
    rig.run(*requests)
    assert rig.runner.rows == rows + 1
    assert usage.recomputed_tokens == 0
    assert {rig.scheduler.family.sequences[child].computed for child in children} == {13}
    assert len({tuple(rig.tokens(child)) for child in children}) > 1


def test_a_member_that_samples_later_draws_from_the_kept_row() -> None:
    rig = Rig(block_size=4)
    root = rig.open(prompt(9))
    early, late = rig.fork(root, [5, 6])
    rig.run(rig.extend(early, extend_params(1)))
    rows, root_tokens = rig.runner.rows, rig.tokens(root)
    extension = rig.extend_now(late, extend_params(1))
    assert rig.runner.rows == rows == 9
    assert list(extension.tokens) == NaiveEngine.extend(root_tokens, 6, extend_params(1), 99)[0]
    # a child forked even later joins the same trunk
    [latest] = rig.fork(root, [7])
    rig.run(rig.extend(latest, extend_params(1)))
    assert rig.runner.rows == rows


def test_a_kept_row_that_was_forgotten_is_computed_again_into_the_trash() -> None:
    rig = Rig(block_size=4, limits=StepLimits(max_kept_rows=0))
    usage = EngineUsage()
    root = rig.open(prompt(9), usage=usage)
    early, late = rig.fork(root, [5, 6])
    rig.run(rig.extend(early, extend_params(1)))
    rig.run(rig.extend(late, extend_params(1)))
    assert rig.runner.rows == 10
    assert usage.recomputed_tokens == 1
    rig.run(rig.extend(early, extend_params(1)))  # the next step tells the runner to forget
    assert rig.runner.kept == {}


def test_kept_rows_are_forgotten_with_the_last_member() -> None:
    rig = Rig(block_size=4)
    root = rig.open(prompt(9))
    [child] = rig.fork(root, [5])
    rig.run(rig.extend(child, extend_params(1)))
    assert len(rig.runner.kept) == 1
    rig.scheduler.release(root)
    rig.run(rig.extend(child, extend_params(2)))
    assert rig.runner.kept == {}


def test_nested_forks_before_the_first_token_share_one_trunk() -> None:
    rig = Rig(block_size=4)
    root = rig.open(prompt(11))
    children = rig.fork(root, [1, 2])
    grandchildren = [seq for child in children for seq in rig.fork(child, [10 + child, 20 + child])]
    rig.run(*[rig.extend(seq, extend_params(3)) for seq in (root, *children, *grandchildren)])
    assert rig.runner.rows == 11 + 7 * 2
    assert rig.runner.samples.total() == 7 * 3


def test_members_with_tokens_of_their_own_wait_for_the_shared_rows() -> None:
    """A reward model's mirror: one prompt, branches that append their own steps; the prompt is computed
    once.
    """
    rig = Rig(block_size=4)
    root = rig.open(prompt(10))
    children = rig.fork(root, range(5))
    for number, child in enumerate(children):
        rig.scheduler.append(child, [30 + number, 31])
    rig.scheduler.release(root)
    scores = [rig.score(child, ScoreParams(logprobs_from=11)) for child in children]
    rig.run(*scores)
    for child, request in zip(children, scores, strict=True):
        assert list(rig.scores(request).logprobs) == NaiveEngine.logprobs(rig.tokens(child), 11)
    assert rig.runner.rows == 10 + 5 * 1
    assert_refs_are_holders(rig)


def test_a_fork_of_a_waiting_member_stacks_a_trunk_on_the_trunk() -> None:
    rig = Rig(block_size=4)
    root = rig.open(prompt(10))
    first, second = rig.fork(root, [1, 2])
    rig.scheduler.append(first, [30, 31, 32])
    inner = rig.fork(first, [3, 4])
    rig.scheduler.append(inner[0], [33])
    requests = [rig.extend(seq, extend_params(2)) for seq in (second, *inner, first, root)]
    rig.run(*requests)
    for seq, request in zip((second, *inner, first, root), requests, strict=True):
        tokens = rig.tokens(seq)
        before, seed = tokens[:-2], rig.scheduler.family.sequences[seq].seed
        assert (
            list(rig.extension(request).tokens) == NaiveEngine.extend(before, seed, extend_params(2), 99)[0]
        )
    rows = 10 + 3 + 1  # the prompt, the appended tokens, the token of one inner branch: each once
    assert rig.runner.rows == rows + 5


def test_a_truncated_member_takes_only_what_it_keeps() -> None:
    rig = Rig(block_size=4)
    root = rig.open(prompt(14))
    rig.run(rig.extend(root, extend_params(1)))
    [child] = rig.fork(root, [1])
    rig.scheduler.truncate(child, 6)
    assert rig.blocks(child) == rig.scheduler.family.sequences[root].holder.table.blocks[:2]
    extension = rig.extend_now(child, extend_params(3))
    assert list(extension.tokens) == NaiveEngine.extend(prompt(14)[:6], 1, extend_params(3), 99)[0]


@pytest.mark.pins("xllm#1984", "TensorRT-LLM#17306")
def test_the_fork_of_a_branch_writes_only_to_its_copy() -> None:
    """Two siblings that go on from one partial block never see each other's tokens."""
    rig = Rig(block_size=16)
    root = rig.open(prompt(5))
    rig.run(rig.extend(root, extend_params(2)))
    children = rig.fork(root, [1, 2])
    for child in children:
        rig.run(rig.extend(child, extend_params(6)))
    blocks = {rig.blocks(SeqId(child))[0] for child in children}
    assert len(blocks) == 2


def test_siblings_are_asked_for_shared_rows_once() -> None:
    rig = Rig(block_size=4)
    meter = RecordingMeter()
    root = rig.open(prompt(10))
    children = rig.fork(root, range(3))
    rig.run(*[rig.extend(child, extend_params(2), meter) for child in children])
    assert sorted(meter.spent_rows()) == sorted([*range(10), 10, 10, 10])
    assert sum(work.tokens for work in meter.committed) == 6
    assert sorted(head for work in meter.committed for head in work.heads) == [9, 10, 10, 10]
