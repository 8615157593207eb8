"""GGUF files of tiny models with their vocabulary, as llama.cpp's converter writes them."""

import json
from pathlib import Path

import gguf
from branchwise.evals.bench import gguf_file

from .tiny import CHAT_TEMPLATE, EOS_ID


def write_gguf(
    folder: Path, path: Path, *, quantised: bool = False, tokenizer: str = "gpt2", pre: str = "gpt-2"
) -> None:
    """Write the model and the tokenizer in `folder` in fp32, or its matrices in 8 bits; `tokenizer` and `pre`
    are what the file calls their kinds."""
    stored = json.loads((folder / "tokenizer.json").read_text())
    pieces = sorted(stored["model"]["vocab"], key=stored["model"]["vocab"].get)
    added = [token["content"] for token in stored["added_tokens"]]

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model(tokenizer)
        writer.add_tokenizer_pre(pre)
        writer.add_token_list([*pieces, *added])
        writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces) + [gguf.TokenType.CONTROL] * len(added))
        writer.add_token_merges([])
        writer.add_eos_token_id(EOS_ID)
        writer.add_chat_template(CHAT_TEMPLATE)

    kind = gguf.GGMLQuantizationType.Q8_0 if quantised else gguf.GGMLQuantizationType.F32
    gguf_file.write_gguf(folder, path, matrices=kind, vocabulary=vocabulary)
