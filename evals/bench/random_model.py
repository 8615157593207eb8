"""Models of random weights in any shape, made on their device: for figures that do not depend on what a model
says."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...engine.models.config import ModelConfig, parse_config
from ...engine.models.decoder import Decoder
from ...engine.models.open import LoadedModel
from ...engine.models.weights import required_shapes
from ...engine.protocol import ModelInfo
from ...engine.sampling.params import SamplingParams
from ...engine.text.profile import ModelProfile
from .oracle import OracleTokenizer

LLAMA_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""The shape of Llama 3 8B."""


class RandomTensors(Mapping[str, Tensor]):
    """The weights of a model by transformers' names, drawn when they are asked for: an embedding or product
    with variance 1 over its inputs, norms of 1, biases of 0. A name gives the same tensor again."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, seed: int = 0
    ) -> None:
        self._shapes = required_shapes(config)
        self._names = {name: place for place, name in enumerate(self._shapes)}
        self._dtype = dtype
        self._device = device
        self._seed = seed

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            value = 1.0 if name.endswith("norm.weight") else 0.0
            return torch.full(shape, value, dtype=self._dtype, device=self._device)
        generator = torch.Generator(self._device).manual_seed(self._seed * 100_003 + self._names[name])
        values = torch.empty(shape, dtype=self._dtype, device=self._device)
        return values.normal_(0.0, shape[1] ** -0.5, generator=generator)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def random_model(
    shape: Mapping[str, object],
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    seed: int = 0,
) -> LoadedModel:
    """A Llama of `shape`, fields as in a `config.json`. It never ends a text."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": max_model_len,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "tie_word_embeddings": False,
        **shape,
    }
    config = parse_config(fields, "a random model")
    decoder = Decoder(config, RandomTensors(config, dtype, device, seed=seed), dtype, device, max_model_len)
    info = ModelInfo(
        name="policy",
        source="random",
        head="lm",
        vocab_size=config.vocab_size,
        max_model_len=max_model_len,
        cost=config.cost,
        tokenizer=OracleTokenizer(),
        profile=ModelProfile(final_answer="eos"),
        sampling=SamplingParams(),
        weights_digest=f"random-{seed}",
    )
    return LoadedModel(info, decoder)
