"""The prefix cache as requests meet it: what hits, what is computed anyway, and what is never returned."""

import pytest
from branchwise.engine.protocol import EngineUsage, ScoreParams
from branchwise.engine.sched.plan import ModelPlan
from branchwise.engine.sched.scheduler import StepLimits
from support.checks import Rig, extend_params
from support.oracle import NaiveEngine, OracleRunner, oracle_info

BLOCK = 4


def prompt(length: int) -> list[int]:
    return [(position * 5) % 47 + 1 for position in range(length)]


@pytest.mark.pins("vllm#43569", "vllm#37152", "vllm#38715", "vllm#41400")
@pytest.mark.parametrize("after_writes", [False, True])
def test_a_failed_step_publishes_nothing(after_writes: bool) -> None:
    """The producer dies between plan and commit; who comes next with the same prompt must compute it."""
    rig = Rig(block_size=BLOCK)
    first = rig.open(prompt(13), seed=1)
    rig.extend(first, extend_params(3))

    def fail(plan: ModelPlan) -> None:
        raise ConnectionError("injected")

    if after_writes:
        rig.runner.after_writes = fail
    else:
        rig.runner.before_step = fail
    rig.step()
    rig.runner.before_step = rig.runner.after_writes = lambda plan: None
    assert len(rig.memory.index) == 0
    usage = EngineUsage()
    second = rig.open(prompt(13), seed=2, usage=usage)
    extension = rig.extend_now(second, extend_params(5))
    assert list(extension.tokens) == NaiveEngine.extend(prompt(13), 2, extend_params(5), 99)[0]
    assert usage.cached_tokens == 0


@pytest.mark.pins("vllm#43569")
def test_nothing_is_published_before_commit() -> None:
    rig = Rig(block_size=BLOCK)
    rig.extend(rig.open(prompt(13), seed=1))
    plan = rig.scheduler.plan()
    assert plan is not None
    assert len(rig.memory.index) == 0
    assert rig.pool.cached == 0
    rig.finish(plan)
    assert len(rig.memory.index) == 13 // BLOCK


@pytest.mark.pins("vllm#43569")
@pytest.mark.pins("vllm#28374")
def test_a_cancelled_producer_leaves_only_what_was_committed() -> None:
    rig = Rig(block_size=BLOCK, limits=StepLimits(max_rows=5, max_chunk_rows=5))
    first = rig.open(prompt(16), seed=1)
    request = rig.extend(first)
    rig.step()
    rig.scheduler.cancel(request)
    rig.scheduler.release(first)
    assert len(rig.memory.index) == 1  # five rows were computed: one whole block
    usage = EngineUsage()
    second = rig.open(prompt(16), seed=2, usage=usage)
    extension = rig.extend_now(second, extend_params(5))
    assert list(extension.tokens) == NaiveEngine.extend(prompt(16), 2, extend_params(5), 99)[0]
    assert usage.cached_tokens == BLOCK


@pytest.mark.pins("vllm#11186", "vllm#17999", "vllm#9972", "LMCache#3322")
@pytest.mark.parametrize("length", [BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_wholly_cached_prompt_still_computes_its_last_row(length: int) -> None:
    rig = Rig(block_size=BLOCK)
    for seed in (1, 2, 3):
        usage = EngineUsage()
        seq = rig.open(prompt(length), seed=seed, usage=usage)
        extension = rig.extend_now(seq, extend_params(4))
        assert list(extension.tokens) == NaiveEngine.extend(prompt(length), seed, extend_params(4), 99)[0]
        assert usage.prefill_tokens + usage.decode_tokens + usage.cached_tokens == length + 3
        assert usage.prefill_tokens + usage.decode_tokens >= 4
        if seed > 1:
            assert usage.cached_tokens == min(length // BLOCK * BLOCK, length - 1)


@pytest.mark.pins("vllm#11186", "vllm#29216", "vllm#41411", "vllm#14239", "vllm#5846")
@pytest.mark.parametrize("length", [BLOCK, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1])
@pytest.mark.parametrize("chunk", range(1, 2 * BLOCK + 2))
@pytest.mark.pins("strands-sglang#34")
def test_scores_on_cached_prompts_are_whole(length: int, chunk: int) -> None:
    """Exactly one log-probability per asked token, the one at the boundary of the cache included."""
    rig = Rig(block_size=BLOCK, limits=StepLimits(max_chunk_rows=chunk))
    for start in (1, length // 2 + 1, length):
        seq = rig.open(prompt(length))
        scores = rig.score_now(seq, ScoreParams(logprobs_from=start))
        assert list(scores.logprobs) == NaiveEngine.logprobs(prompt(length), start)
        assert len(scores.logprobs) == length - start


@pytest.mark.pins("vllm#3251", "vllm#3914", "vllm#8268", "vllm#13409")
def test_scoring_reuses_kv_up_to_the_first_needed_row() -> None:
    rig = Rig(block_size=BLOCK)
    usage = EngineUsage()
    seq = rig.open(prompt(40), usage=usage)
    rig.score_now(seq, ScoreParams(logprobs_from=39))
    assert rig.runner.rows == 39
    rig.scheduler.append(seq, [9] * 6)
    rig.score_now(seq, ScoreParams(logprobs_from=40))
    assert rig.runner.rows == 39 + 6  # rows 39 .. 44


@pytest.mark.pins("vllm#30931", "vllm#42125", "vllm#17045", "llama.cpp#26207")
@pytest.mark.pins("vllm#16016", "vllm#53347", "vllm#54727")
def test_another_namespace_is_a_miss_and_nothing_else() -> None:
    rig = Rig(block_size=BLOCK)
    tokens: dict[str, list[int]] = {}
    for namespace, cached in (("a", 0), ("b", 0), ("a", 12)):
        usage = EngineUsage()
        seq = rig.open(prompt(14), seed=5, namespace=namespace, usage=usage)
        extension = rig.extend_now(seq, extend_params(4))
        assert usage.cached_tokens == cached
        assert tokens.setdefault("tokens", list(extension.tokens)) == list(extension.tokens)


@pytest.mark.pins("vllm#42125")
def test_other_weights_miss() -> None:
    infos = [oracle_info("policy", digest="one"), oracle_info("draft", digest="two")]
    rig = Rig(block_size=BLOCK, infos=infos)
    for model in ("policy", "draft"):
        usage = EngineUsage()
        rig.extend_now(rig.open(prompt(14), model=model, usage=usage), extend_params(1))
        assert usage.cached_tokens == 0
    assert rig.scheduler.memories["policy"].index.root("") != rig.scheduler.memories["draft"].index.root("")


@pytest.mark.pins("vllm#9501")
def test_a_sibling_waits_for_the_block_that_is_being_computed() -> None:
    """Two equal prompts arrive together: one computes the shared blocks, the other finds them."""
    rig = Rig(block_size=BLOCK, limits=StepLimits(max_rows=20, max_chunk_rows=8))
    usages = [EngineUsage() for _ in range(3)]
    requests = [
        rig.extend(rig.open(prompt(17), seed=seed, usage=usage), extend_params(2))
        for seed, usage in enumerate(usages)
    ]
    rig.run(*requests)
    assert [usage.cached_tokens for usage in usages] == [0, 16, 16]
    assert rig.scheduler.counters.deferred_for_prefix > 0
    assert rig.runner.rows == 17 + 1 + 1 + 3


@pytest.mark.pins("sglang#16521", "inference-perf#649", "prime-rl#1863", "llama.cpp#16632", "mlc-llm#3179")
def test_the_next_turn_finds_what_was_generated() -> None:
    """Token ids go in as they came out, so the answer is a prefix of the next turn, whatever its text is."""
    rig = Rig(block_size=BLOCK)
    first = rig.open(prompt(6), seed=1)
    rig.extend_now(first, extend_params(9))
    turn = [*rig.tokens(first), 5, 6, 7]
    rig.scheduler.release(first)
    usage = EngineUsage()
    second = rig.open(turn, seed=2, usage=usage)
    extension = rig.extend_now(second, extend_params(4))
    assert usage.cached_tokens == 12  # all whole blocks of the 14 positions whose KV stood
    assert list(extension.tokens) == NaiveEngine.extend(turn, 2, extend_params(4), 99)[0]


def test_equal_blocks_written_side_by_side_become_one_at_commit() -> None:
    rig = Rig(block_size=BLOCK)
    first, second = rig.open([7] * 6, seed=1), rig.open([7] * 5, seed=2)
    rig.run(rig.extend(first, extend_params(1, temperature=0)), rig.extend(second, extend_params(1)))
    rig.scheduler.truncate(first, 6)
    rig.scheduler.truncate(second, 5)
    rig.scheduler.append(first, [8, 8, 8])
    rig.scheduler.append(second, [7, 8, 8, 8])
    rig.run(rig.score(first, ScoreParams(logprobs_from=8)), rig.score(second, ScoreParams(logprobs_from=8)))
    assert rig.tokens(first) == rig.tokens(second)
    assert rig.blocks(first)[:2] == rig.blocks(second)[:2]
    assert rig.pool.refs(rig.blocks(first)[1]) == 2


@pytest.mark.pins("openvino.genai#4190", "mlxcel#994", "vllm#56734")
@pytest.mark.parametrize("cut", range(1, 14))
def test_after_a_truncation_the_kv_equals_a_fresh_prefill(cut: int) -> None:
    """Positions below the cut are untouched, those behind it are written anew: compared by canary and by
    tokens.
    """
    rig = Rig(block_size=BLOCK)
    seq = rig.open(prompt(9), seed=3)
    rig.extend_now(seq, extend_params(5))
    rig.scheduler.truncate(seq, cut)
    before = rig.tokens(seq)
    extension = rig.extend_now(seq, extend_params(6))
    assert list(extension.tokens) == NaiveEngine.extend(before, 3, extend_params(6), 99)[0]
    assert canaries(rig, rig.blocks(seq)) == [
        (token, position) for position, token in enumerate(rig.tokens(seq)[:-1])
    ]


@pytest.mark.pins("vllm#43810", "sglang#32477", "sglang#35351")
def test_no_table_ever_holds_the_trash_block() -> None:
    """The oracle raises on a read of the trash block; here it is poisoned and rows are written to it."""
    rig = Rig(block_size=BLOCK, limits=StepLimits(max_kept_rows=0))
    root = rig.open(prompt(8))
    children = rig.fork(root, range(3))
    for child in children:
        rig.extend_now(child, extend_params(2))  # each computes the last row again, into the trash
    assert rig.runner.slots[:BLOCK] == [None] * BLOCK
    assert all(0 not in seq.table.blocks for seq in rig.scheduler.family.sequences.values())


def canaries(rig: Rig, blocks: tuple[int, ...]) -> list[tuple[int, int] | None]:
    runner: OracleRunner = rig.runner
    slots = [runner.slots[block * BLOCK : (block + 1) * BLOCK] for block in blocks]
    flat = [slot for block in slots for slot in block]
    computed = max(s.computed for s in rig.scheduler.family.sequences.values())
    return flat[:computed]
