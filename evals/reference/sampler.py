"""Batched sampling with a key-value cache, for labels and figures (the engine serves everything else)."""

from typing import NamedTuple

import torch
from torch import Tensor

from .decoder import Decoder, KeyValueCache
from .vocabulary import BOS_ID, EOS_ID, decode, encode

MAX_NEW_TOKENS = 256
COMPACT_BELOW = 0.8


class Completion(NamedTuple):
    """One sampled completion: its text with special tokens spelt out, and its token ids."""

    text: str
    token_ids: list[int]


def sample(
    model: Decoder,
    prompts: list[str],
    count: int,
    temperature: float,
    generator: torch.Generator,
    max_new_tokens: int = MAX_NEW_TOKENS,
    max_rows: int = 512,
) -> list[list[Completion]]:
    """`count` completions of each prompt; greedy where `temperature` is 0.

    Prompts of equal length run together, so no row is padded, at most `max_rows` rows at once.
    """
    encoded = [[BOS_ID, *encode(prompt)] for prompt in prompts]
    completions: list[list[Completion]] = [[] for _ in prompts]
    by_length: dict[int, list[int]] = {}
    for index, token_ids in enumerate(encoded):
        by_length.setdefault(len(token_ids), []).append(index)
    prompts_at_once = max(1, max_rows // count)
    for indices in by_length.values():
        for start in range(0, len(indices), prompts_at_once):
            part = indices[start : start + prompts_at_once]
            rows = _sample_rows(
                model, torch.tensor([encoded[i] for i in part]), count, temperature, generator, max_new_tokens
            )
            for row, token_ids in enumerate(rows):
                completions[part[row // count]].append(Completion(decode(token_ids), token_ids))
    return completions


@torch.inference_mode()
def _sample_rows(
    model: Decoder,
    prompt_ids: Tensor,
    count: int,
    temperature: float,
    generator: torch.Generator,
    max_new_tokens: int,
) -> list[list[int]]:
    """Token ids of `count` completions of each prompt [B, T], eos included; finished rows leave the batch."""
    num_rows = prompt_ids.shape[0] * count
    cache = KeyValueCache(model.config, prompt_ids.shape[0], model.compute_dtype)
    logits = model(prompt_ids, cache)[:, -1].repeat_interleave(count, dim=0)
    cache.repeat(count)
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    live = torch.arange(num_rows)
    going = torch.ones(num_rows, dtype=torch.bool)
    for _ in range(max_new_tokens):
        tokens = _choose(logits, temperature, generator)
        for row, token in zip(live.tolist(), tokens.tolist(), strict=True):
            rows[row].append(token)
        going &= tokens != EOS_ID
        if not going.any():
            break
        if going.float().mean() < COMPACT_BELOW:
            cache.keep(going)
            live, tokens, going = live[going], tokens[going], going[going]
        logits = model(tokens[:, None], cache)[:, -1]
    return [row[: row.index(EOS_ID) + 1] if EOS_ID in row else row for row in rows]


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Next tokens [B] from logits [B, V], by the Gumbel-max trick."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    noise = torch.empty_like(logits).exponential_(generator=generator).log_()
    return (logits / temperature - noise).argmax(dim=-1)
