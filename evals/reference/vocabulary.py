"""The character vocabulary of the reference models: ten special tokens, then printable ASCII.

Token ids: specials are 0..9 in the order of `SPECIALS`, the character `c` is `len(SPECIALS) + ord(c) - 32`.
"""

import re

PAD = "<pad>"
BOS = "<bos>"
EOS = "<eos>"
UNKNOWN = "<unk>"
THINK_END = "</think>"
WAIT = "<wait>"
CALL = "<call>"
CALL_END = "</call>"
RESULT = "<result>"
RESULT_END = "</result>"

SPECIALS = (PAD, BOS, EOS, UNKNOWN, THINK_END, WAIT, CALL, CALL_END, RESULT, RESULT_END)
PRINTABLE = "".join(map(chr, range(32, 127)))
STEP_MARK = ";"

TOKENS = SPECIALS + tuple(PRINTABLE)
TOKEN_IDS = {token: index for index, token in enumerate(TOKENS)}
VOCABULARY_SIZE = len(TOKENS)

PAD_ID = TOKEN_IDS[PAD]
BOS_ID = TOKEN_IDS[BOS]
EOS_ID = TOKEN_IDS[EOS]
THINK_END_ID = TOKEN_IDS[THINK_END]
WAIT_ID = TOKEN_IDS[WAIT]
STEP_MARK_ID = TOKEN_IDS[STEP_MARK]

_TOKEN = re.compile("|".join(map(re.escape, SPECIALS)) + "|.", re.DOTALL)


def encode(text: str) -> list[int]:
    """Token ids of `text`; special tokens are read by their spelling, other characters one by one."""
    unknown = TOKEN_IDS[UNKNOWN]
    return [TOKEN_IDS.get(token, unknown) for token in _TOKEN.findall(text)]


def decode(token_ids: list[int]) -> str:
    """Text of `token_ids`, with special tokens spelt out; the inverse of `encode` on printable ASCII."""
    return "".join(TOKENS[token_id] for token_id in token_ids)
