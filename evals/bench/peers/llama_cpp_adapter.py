"""llama.cpp by llama-cpp-python's low-level API: continuous batches, flash attention, prompts computed once.

With `prefix_cache` all sequences share one KV buffer, samples of a prompt refer to its cells, and a prompt
that begins as a sequence of the run before goes on behind the common part. Without it each sequence has a
buffer of its own, which is the faster way where nothing is shared.
"""

import time
from itertools import takewhile
from typing import Any

import llama_cpp  # pyright: ignore[reportMissingImports]

Request = dict[str, Any]

STEP_TOKENS = 2048
CACHED_SEQUENCES = 256
MOST_CELLS = 65536
SHORTEST_REUSE = 16


class Sequence:
    """A sample on its way: `computed` of its `known` tokens stand in the KV, the last `new` are its own."""

    def __init__(
        self, number: int, prompt: list[int], computed: int, wanted: int, temperature: float
    ) -> None:
        self.number = number
        self.known = list(prompt)
        self.computed = computed
        self.prompt = len(prompt)
        self.wanted = wanted
        self.temperature = temperature
        self.times: list[float] = []

    @property
    def new(self) -> list[int]:
        return self.known[self.prompt :]

    @property
    def done(self) -> bool:
        return len(self.known) >= self.prompt + self.wanted


class Peer:
    def __init__(
        self, model: str, threads: int, dtype: str, positions: int, sequences: int, prefix_cache: bool
    ) -> None:
        llama_cpp.llama_backend_init()
        self._shares = prefix_cache
        self._model = llama_cpp.llama_model_load_from_file(
            model.encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise ValueError(f"{model} does not load")
        params = llama_cpp.llama_context_default_params()
        cells = max(sequences * positions, STEP_TOKENS)
        params.n_ctx = min(MOST_CELLS, cells) if prefix_cache else cells
        params.n_seq_max = CACHED_SEQUENCES if prefix_cache else sequences
        params.kv_unified = prefix_cache
        params.n_batch = STEP_TOKENS
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.no_perf = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise ValueError(f"{model}: no context of {params.n_ctx} positions")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(STEP_TOKENS, 0, 1)
        self._numbers = list(range(params.n_seq_max))
        self._held: list[Sequence] = []
        self._samplers: dict[float, Any] = {}
        self.version = f"llama-cpp-python {llama_cpp.__version__}"

    def run(self, requests: list[Request], timed: bool) -> list[dict[str, Any]]:
        groups = [[self._begin(request)] for request in requests]
        self._release(self._held)
        waiting = {
            group[0].number: (group, request["samples"])
            for group, request in zip(groups, requests, strict=True)
        }
        running = [group[0] for group in groups]
        while running:
            for row, sequence in self._step(running):
                drawing = [sequence]
                if sequence.number in waiting:  # its prompt is computed: the others begin here
                    group, samples = waiting.pop(sequence.number)
                    group += [self._sibling(sequence) for _ in range(samples - 1)]
                    running += group[1:]
                    drawing = group
                for one in drawing:
                    one.known.append(self._draw(one.temperature, row))
                    if timed:
                        one.times.append(time.perf_counter())
            running = [sequence for sequence in running if not sequence.done]
        found = [sequence for group in groups for sequence in group]
        if self._shares:
            self._held = found
        else:
            self._release(found)
        return [{"tokens": sequence.new, "times": sequence.times} for sequence in found]

    def _begin(self, request: Request) -> Sequence:
        """The first sequence of a request, behind what the run before has of its prompt."""
        prompt, number = request["prompt"], self._numbers.pop()
        source, shared = None, 0
        for held in self._held:
            pairs = zip(held.known[: held.computed], prompt[:-1], strict=False)
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if common > max(shared, SHORTEST_REUSE - 1):
                source, shared = held, common
        if source is not None:
            llama_cpp.llama_memory_seq_cp(self._memory, source.number, number, 0, shared)
        return Sequence(number, prompt, shared, request["new"], request["temperature"])

    def _sibling(self, sequence: Sequence) -> Sequence:
        """Another sample of a prompt that is computed."""
        number = self._numbers.pop()
        llama_cpp.llama_memory_seq_cp(self._memory, sequence.number, number, 0, sequence.prompt)
        return Sequence(number, sequence.known, sequence.prompt, sequence.wanted, sequence.temperature)

    def _release(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            llama_cpp.llama_memory_seq_rm(self._memory, sequence.number, -1, -1)
            self._numbers.append(sequence.number)

    def _step(self, running: list[Sequence]) -> list[tuple[int, Sequence]]:
        """Compute a batch, decoding sequences first; returns the row of logits of each sequence whose known
        tokens are all computed now."""
        batch, asked, rows = self._batch, [], 0
        for sequence in sorted(running, key=lambda one: len(one.known) - one.computed):
            end = min(len(sequence.known), sequence.computed + STEP_TOKENS - rows)
            for position in range(sequence.computed, end):
                batch.token[rows] = sequence.known[position]
                batch.pos[rows] = position
                batch.n_seq_id[rows] = 1
                batch.seq_id[rows][0] = sequence.number
                batch.logits[rows] = position + 1 == len(sequence.known)
                rows += 1
            if end == len(sequence.known):
                asked.append((rows - 1, sequence))
            sequence.computed = end
            if rows == STEP_TOKENS:
                break
        batch.n_tokens = rows
        status = llama_cpp.llama_decode(self._context, batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status} for {rows} rows")
        return asked

    def _draw(self, temperature: float, row: int) -> int:
        if temperature not in self._samplers:
            self._samplers[temperature] = sampler(temperature)
        return llama_cpp.llama_sampler_sample(self._samplers[temperature], self._context, row)


def sampler(temperature: float) -> Any:
    """From the whole distribution; greedy at 0."""
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    if temperature == 0:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_greedy())
        return chain
    if temperature != 1:
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_temp(temperature))
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(0))
    return chain
