"""`transformers.generate` as a peer of the best-of-n benchmark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from ...engine.models.open import DTYPES
from .best_of_n import Workload


class TransformersPeer:
    """One causal LM with `generate(num_return_sequences=n)`, its usual way to best-of-n."""

    def __init__(self, folder: Path, dtype: str) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        loader: Any = transformers.AutoModelForCausalLM
        self._model = loader.from_pretrained(folder, dtype=DTYPES[dtype]).eval()
        # An end token would let it stop early.
        self._model.generation_config = transformers.GenerationConfig(eos_token_id=None, pad_token_id=0)

    def generate(self, prompt: Sequence[int], workload: Workload) -> None:
        """All samples of one prompt, at temperature 1 from the whole distribution."""
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                num_return_sequences=workload.samples,
                max_new_tokens=workload.new_tokens,
            )
        expected = (workload.samples, len(prompt) + workload.new_tokens)
        if tuple(out.shape) != expected:
            raise RuntimeError(f"transformers generated {tuple(out.shape)} tokens, not {expected}")
