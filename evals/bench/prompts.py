"""Prompts for measuring speed: token ids by seed, the same for the engine and the peers."""

import random


def random_prompt(vocab_size: int, length: int, seed: str) -> list[int]:
    """Seeded ids from the upper half of the vocabulary, where control tokens are rare. Each run has seeds of
    its own, so that no cache of an earlier run helps."""
    draw = random.Random(seed)
    return [draw.randrange(vocab_size // 2, vocab_size) for _ in range(length)]
