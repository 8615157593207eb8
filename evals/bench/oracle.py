"""A model that takes no time: what the engine itself needs around it is all that is left to measure."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from ...engine.exec.runner import Runner
from ...engine.hosted import EngineModel
from ...engine.models.open import LoadedModel
from ...engine.models.step_model import AttentionShape, Batch
from ...engine.protocol import ModelCost, ModelInfo
from ...engine.sampling.params import SamplingParams
from ...engine.sampling.sampler import NoToken, Token
from ...engine.sampling.target import Draw
from ...engine.text.profile import ModelProfile
from ...engine.text.tokenizer import Message
from ...kernels.interface import Attention

VOCABULARY = 64
BLOCK_SIZE = 16


class OracleTokenizer:
    """One token per character, by its code."""

    vocab_size = VOCABULARY

    def encode(self, text: str) -> list[int]:
        return [ord(character) % VOCABULARY for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in ids)

    def chat(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        return self.encode(messages[-1].content)

    def token_id(self, text: str) -> int | None:
        return None


class OracleModel:
    """Implements `StepModel` and `Drawing`: the next token is a hash of the last one and its position. No
    layers, no logits; the time that it takes itself is noted per step, to be left out."""

    dtype = torch.float32
    device = torch.device("cpu")
    columns = VOCABULARY
    fixed_rows = True
    needs_row_tile = False
    fixed_memory = False
    fused_head = None
    shape = AttentionShape(layers=1, heads=2, kv_heads=1, head_dim=16, scale=0.25, windows=(None,))

    def __init__(self) -> None:
        self.entered: list[float] = []
        self.own: list[float] = []
        self.rows: list[int] = []

    def forward(self, batch: Batch, kv: Tensor, attention: Attention) -> Tensor:
        """The hash of each row, [rows, 1]."""
        entered = time.perf_counter()
        hashed = (batch.tokens * 2654435761 + batch.positions * 40503) % VOCABULARY
        self.entered.append(entered)
        self.rows.append(len(hashed))
        self.own.append(time.perf_counter() - entered)
        return hashed[:, None]

    def head(self, hidden: Tensor, row_tile: int | None) -> Tensor:
        """The hashes, which `draw` turns into tokens."""
        return hidden

    def draw(self, logits: Tensor, draws: Sequence[Draw]) -> list[Token | NoToken]:
        """Implements `Drawing`: the hash of each draw's row is its token."""
        entered = time.perf_counter()
        hashes = logits[:, 0].tolist()
        drawn: list[Token | NoToken] = [Token(hashes[draw.row], 0.0) for draw in draws]
        self.own[-1] += time.perf_counter() - entered
        return drawn


def oracle_info(max_model_len: int) -> ModelInfo:
    """Facts of the oracle; it never ends a text."""
    return ModelInfo(
        name="policy",
        source="oracle",
        head="lm",
        vocab_size=VOCABULARY,
        max_model_len=max_model_len,
        cost=ModelCost(block_params=1, layers=1, attention_width=1, hidden=1, head_columns=VOCABULARY),
        tokenizer=OracleTokenizer(),
        profile=ModelProfile(final_answer="eos"),
        sampling=SamplingParams(),
        weights_digest="oracle",
    )


def oracle_engine_model(model: OracleModel, sequences: int, max_model_len: int) -> EngineModel:
    """The oracle behind the real runner, with KV memory for so many sequences of full length."""
    info = oracle_info(max_model_len)
    blocks = sequences * -(-max_model_len // BLOCK_SIZE) + 2
    runner = Runner(LoadedModel(info, model), blocks, block_size=BLOCK_SIZE, sampler=model)
    return EngineModel(info=info, runner=runner, num_blocks=blocks, block_size=BLOCK_SIZE, kv_format="oracle")
