"""The facts of a model whose weights are elsewhere: from its folder without them, or from its server."""

from pathlib import Path

from ..errors import ModelLoadError
from ..models.config import as_ids, family_of, parse_config, read_fields
from ..models.open import default_sampling, read_json
from ..protocol import ModelCost, ModelInfo
from ..sampling.params import SamplingParams
from ..text.profile import load_profile, read_notes
from ..text.tokenizer import HfTokenizer
from .served_tokenizer import ServedTokenizer

UNKNOWN_COST = ModelCost(block_params=0, layers=0, attention_width=0, hidden=0, head_columns=0)
"""Of a model whose `config.json` does not tell its shape: its work is not counted."""


def describe(folder: Path, *, name: str, source: str, max_model_len: int | None) -> ModelInfo:
    """The facts by tokenizer.json, config.json, generation_config.json and branchwise.json; `max_model_len`
    is the server's context in positions, None for the trained one.

    Raises `ModelLoadError` in one line.
    """
    tokenizer = HfTokenizer.open(folder)
    fields, generation = read_fields(folder), read_json(folder / "generation_config.json")
    notes = read_notes(read_json(folder / "branchwise.json"), str(folder / "branchwise.json"))
    cost, trained, own_ends = UNKNOWN_COST, _context(fields), as_ids(fields.get("eos_token_id"), str(folder))
    vocab_size = tokenizer.vocab_size
    if family_of(fields) is not None:
        facts = parse_config(fields, str(folder)).facts
        if facts.is_reward:
            raise ModelLoadError(
                f"{source}: {folder} is a reward model; only language models are used remotely"
            )
        cost, trained, vocab_size = facts.cost, facts.max_position, facts.vocab_size
    length = max_model_len or trained
    if length is None:
        raise ModelLoadError(
            f"{source}: neither the server nor {folder} tells the context; give --max-model-len"
        )
    ends = {*as_ids(generation.get("eos_token_id"), str(folder)), *own_ends}
    return ModelInfo(
        name=name,
        source=source,
        head="lm",
        vocab_size=vocab_size,
        max_model_len=length,
        cost=cost,
        tokenizer=tokenizer,
        profile=load_profile(tokenizer, notes.profile, ends, str(folder / "branchwise.json")),
        sampling=default_sampling(generation, folder),
        weights_digest="",
    )


def describe_served(
    tokenizer: ServedTokenizer, *, name: str, source: str, max_model_len: int | None
) -> ModelInfo:
    """The facts that a server tells. Raises `ModelLoadError` without a context, and `ServerFailed`."""
    if max_model_len is None:
        raise ModelLoadError(f"{source}: the server does not tell the context; give --max-model-len")
    return ModelInfo(
        name=name,
        source=source,
        head="lm",
        vocab_size=tokenizer.vocab_size,
        max_model_len=max_model_len,
        cost=UNKNOWN_COST,
        tokenizer=tokenizer,
        profile=load_profile(tokenizer, None, (), source),
        sampling=SamplingParams(),
        weights_digest="",
    )


def _context(fields: dict[str, object]) -> int | None:
    trained = fields.get("max_position_embeddings")
    return trained if isinstance(trained, int) else None
