"""OpenVINO GenAI: continuous batching over a folder exported by `optimum-cli export openvino`.

Block KV cache (its default precision), prompts split and fused with decoding, products in bfloat16.
"""

import time
from typing import Any

import numpy
import openvino  # pyright: ignore[reportMissingImports]
import openvino_genai  # pyright: ignore[reportMissingImports]

Request = dict[str, Any]

CACHE_GB = 4
STEP_TOKENS = 2048


class Peer:
    def __init__(
        self, model: str, threads: int, dtype: str, positions: int, sequences: int, prefix_cache: bool
    ) -> None:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size = CACHE_GB
        scheduling.max_num_batched_tokens = STEP_TOKENS
        scheduling.max_num_seqs = 256
        scheduling.dynamic_split_fuse = True
        scheduling.enable_prefix_caching = prefix_cache
        precision = "bf16" if dtype == "bfloat16" else "f32"
        properties = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduling, "CPU", properties)
        self._requests = 0
        self.version = f"openvino-genai {openvino_genai.__version__}"

    def run(self, requests: list[Request], timed: bool) -> list[dict[str, Any]]:
        handles: list[Any] = []
        for request in requests:
            ids = openvino.Tensor(numpy.array([request["prompt"]], dtype=numpy.int64))
            handles.append(self._pipeline.add_request(self._requests, ids, settings(request)))
            self._requests += 1
        found: list[dict[int, list[int]]] = [{} for _ in handles]
        moments: list[list[float]] = [[] for _ in handles]
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            if timed:
                now = time.perf_counter()
                for handle, tokens, times in zip(handles, found, moments, strict=True):
                    while handle.can_read():
                        take(handle.read(), tokens)
                        times.append(now)
        if not timed:
            for handle, tokens in zip(handles, found, strict=True):
                for index, output in enumerate(handle.read_all()):
                    tokens[index] = list(output.generated_ids)
        return [
            {"tokens": tokens, "times": times}
            for by_sample, times in zip(found, moments, strict=True)
            for tokens in by_sample.values()
        ]


def settings(request: Request) -> Any:
    generation = openvino_genai.GenerationConfig()
    generation.max_new_tokens = request["new"]
    generation.ignore_eos = True
    generation.num_return_sequences = request["samples"]
    generation.do_sample = request["temperature"] > 0
    if generation.do_sample:
        generation.temperature = request["temperature"]
        generation.top_p = 1.0
    return generation


def take(outputs: dict[int, Any], tokens: dict[int, list[int]]) -> None:
    """Add what a step gave to the tokens of each sample."""
    for sample, output in outputs.items():
        tokens.setdefault(sample, []).extend(output.generated_ids)
