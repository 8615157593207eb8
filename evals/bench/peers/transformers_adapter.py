"""transformers: `generate`, with `num_return_sequences` for the samples of one prompt.

Requests of one prompt length are one batch; others are padded on the left to the longest, and run until the
last has its tokens.
"""

import time
from typing import Any

import torch
import transformers

Request = dict[str, Any]


class Peer:
    def __init__(
        self, model: str, threads: int, dtype: str, positions: int, sequences: int, prefix_cache: bool
    ) -> None:
        torch.set_num_threads(threads)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        kind = getattr(torch, dtype)
        loader: Any = transformers.AutoModelForCausalLM
        self._model = loader.from_pretrained(model, dtype=kind).eval()
        # An end token would let it stop early.
        self._model.generation_config = transformers.GenerationConfig(eos_token_id=None, pad_token_id=0)
        self.version = f"transformers {transformers.__version__}"

    def run(self, requests: list[Request], timed: bool) -> list[dict[str, Any]]:
        sequences: list[dict[str, Any]] = []
        for batch in batches(requests):
            sequences += self._generate(batch)
        return sequences

    def _generate(self, batch: list[Request]) -> list[dict[str, Any]]:
        longest = max(len(request["prompt"]) for request in batch)
        new = max(request["new"] for request in batch)
        pad = [longest - len(request["prompt"]) for request in batch]
        ids = [[0] * count + request["prompt"] for count, request in zip(pad, batch, strict=True)]
        mask = [[0] * count + [1] * (longest - count) for count in pad]
        samples, temperature = batch[0]["samples"], batch[0]["temperature"]
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        times = Times()
        with torch.inference_mode():
            out = self._model.generate(
                torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                num_return_sequences=samples,
                max_new_tokens=new,
                stopping_criteria=transformers.StoppingCriteriaList([times]),
                **sampling,
            )
        rows = out[:, longest:].tolist()
        wanted = [request["new"] for request in batch for _ in range(samples)]
        return [
            {"tokens": row[:count], "times": times.moments[:count]}
            for row, count in zip(rows, wanted, strict=True)
        ]


class Times(transformers.StoppingCriteria):
    """Reads the clock at each token, and stops nothing."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        self.moments.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool)


def batches(requests: list[Request]) -> list[list[Request]]:
    """Requests that only want their prompts read gain nothing by a batch, and padding costs: one by one."""
    if all(request["new"] == 1 for request in requests):
        return [[request] for request in requests]
    by_samples: dict[tuple[int, float], list[Request]] = {}
    for request in requests:
        by_samples.setdefault((request["samples"], request["temperature"]), []).append(request)
    if len(by_samples) > 1:
        raise ValueError("requests of one run must have equal samples and temperature")
    return list(by_samples.values())
