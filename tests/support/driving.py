"""Drives a `Runner` without the scheduler: one sequence at a time, or siblings that share blocks."""

from collections.abc import Sequence

from branchwise.engine.exec.runner import Runner
from branchwise.engine.protocol import SeqId
from branchwise.engine.sampling.params import SamplingParams
from branchwise.engine.sched.plan import Drawn, ModelPlan, ModelResult, Sample, Span


def table(first_block: int, positions: int, block_size: int = 16) -> tuple[int, ...]:
    """Consecutive blocks that hold `positions`."""
    return tuple(range(first_block, first_block + -(-positions // block_size)))


def run(runner: Runner, *spans: Span) -> ModelResult:
    """One step."""
    return runner.execute(ModelPlan(model="policy", spans=spans))


def scored_logprobs(
    runner: Runner, tokens: Sequence[int], *, chunks: Sequence[int] | None = None, first_block: int = 1
) -> list[float]:
    """Log-probability of each token but the first, prefilled in `chunks` (lengths that add up to all
    rows)."""
    found: list[float] = []
    start = 0
    for length in chunks or [len(tokens)]:
        stop = start + length
        places = tuple(p for p in range(start, stop) if p + 1 < len(tokens))
        span = Span(
            seq=SeqId(1),
            start=start,
            tokens=tuple(tokens[start:stop]),
            blocks=table(first_block, stop, runner.cache.block_size),
            write_from=start,
            logprob_at=places,
            targets=tuple(tokens[p + 1] for p in places),
        )
        found += [value for part in run(runner, span).scores for value in part.logprobs]
        start = stop
    return found


def decode(
    runner: Runner,
    tables: Sequence[tuple[int, ...]],
    prompts: Sequence[Sequence[int]],
    computed: Sequence[int],
    seeds: Sequence[int],
    count: int,
    params: SamplingParams,
) -> list[list[Drawn]]:
    """`count` tokens of each sequence; of sequence i the KV of `prompts[i][:computed[i]]` stands in
    `tables[i]`."""
    tokens = [list(prompt) for prompt in prompts]
    done = list(computed)
    drawn: list[list[Drawn]] = [[] for _ in prompts]
    size = runner.cache.block_size
    for _ in range(count):
        spans = [
            Span(
                seq=SeqId(index),
                start=done[index],
                tokens=tuple(known[done[index] :]),
                blocks=tables[index][: -(-len(known) // size)],
                write_from=done[index],
                samples=(Sample(SeqId(index), seeds[index], len(known), params),),
            )
            for index, known in enumerate(tokens)
        ]
        for token in run(runner, *spans).drawn:
            done[token.seq] = len(tokens[token.seq])
            tokens[token.seq].append(token.token)
            drawn[token.seq].append(token)
    return drawn
