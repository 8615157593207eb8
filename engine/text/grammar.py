"""Text that must fit a grammar: which tokens may come next (`llguidance`, the extra `structured`)."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..errors import CapabilityError, UsageError
from .tokenizer import BytePieces, HfTokenizer, Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

_SPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""White space between the parts of a text. It is bounded: a model that only indents would never end."""

_OPTIONS: "JsonCompileOptions" = {"whitespace_pattern": _SPACE}


class GrammarState(Protocol):
    """How far one text got. A state belongs to one extension and grows with it."""

    @property
    def finished(self) -> bool:
        """The text fits the whole grammar, and nothing but its end may follow."""
        ...

    def accepts(self, token: int) -> bool:
        """Whether `token` may follow."""
        ...

    def push(self, token: int) -> None:
        """`token` stands behind the text. One that does not fit leaves a text that no token may follow."""
        ...

    def allowed(self, drafted: Sequence[int] = ()) -> np.ndarray | None:
        """Which tokens may follow `drafted`, bool [vocab], end ids where the text may end. None: `drafted`
        itself does not fit, so that nobody asks what is behind it."""
        ...


class Grammar(Protocol):
    """What a text must be. Shared between threads; the states are not."""

    @property
    def schema(self) -> str | None:
        """The JSON schema that says the same, as JSON. None where there is none."""
        ...

    def fits(self, tokens: Sequence[int]) -> bool:
        """Whether a text that fits can begin with these tokens."""
        ...

    def begin(self, tokens: Sequence[int], vocab_size: int) -> GrammarState:
        """The state behind `tokens`, for a model with that many logits."""
        ...


class Constraint(NamedTuple):
    """The tokens of a sequence from position `start` on are a text of `grammar`."""

    grammar: Grammar
    start: int


class CompiledGrammar:
    """The texts of one grammar, in the tokens of one tokenizer. `schema` is what it was made of, None where
    that was no schema."""

    def __init__(self, schema: str | None, matcher: "LLMatcher") -> None:
        self.schema = schema
        self._pristine = matcher

    def fits(self, tokens: Sequence[int]) -> bool:
        return self._pristine.deep_copy().consume_tokens(list(tokens))

    def begin(self, tokens: Sequence[int], vocab_size: int) -> GrammarState:
        matcher = self._pristine.deep_copy()
        matcher.consume_tokens(list(tokens))
        return _CompiledState(matcher, vocab_size)


class _CompiledState:
    """Implements `GrammarState`."""

    def __init__(self, matcher: "LLMatcher", vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    @property
    def finished(self) -> bool:
        matcher = self._matcher
        return matcher.is_stopped() and not matcher.is_error()

    def accepts(self, token: int) -> bool:
        return self._matcher.validate_tokens([token]) == 1

    def push(self, token: int) -> None:
        self._matcher.consume_token(token)

    def allowed(self, drafted: Sequence[int] = ()) -> np.ndarray | None:
        matcher = self._matcher
        if drafted and not matcher.is_error():
            matcher = matcher.deep_copy()
            if not matcher.consume_tokens(list(drafted)):
                return None
        if matcher.is_error():
            return np.zeros(self._vocab_size, bool)
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        mask = np.zeros(self._vocab_size, bool)
        mask[: len(bits)] = bits[: self._vocab_size]
        return mask


def json_grammar(
    schema: Mapping[str, Any], tokenizer: Tokenizer, stop_ids: frozenset[int], vocab_size: int
) -> CompiledGrammar:
    """The grammar of a JSON schema (drafts 4 to 2020-12, as far as llguidance knows them). `stop_ids` end the
    text.

    Raises `UsageError` in one line for what is no schema or a keyword that cannot be kept to, and for a model
    whose vocabulary cannot begin such a text; `CapabilityError` where llguidance is not installed.
    """
    if not isinstance(schema, Mapping):
        raise UsageError(f"schema is {type(schema).__name__}: give a JSON schema as an object")
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"schema: is not JSON ({error})") from None
    return _compiled("schema", text, tokenizer, stop_ids, vocab_size)


def lark_grammar(
    lark: str, tokenizer: Tokenizer, stop_ids: frozenset[int], vocab_size: int, *, option: str
) -> CompiledGrammar:
    """The grammar in llguidance's dialect of Lark; `json_rule` writes its parts that are JSON. Errors as of
    `json_grammar`; they name `option`, which it was made of."""
    return _compiled(option, lark, tokenizer, stop_ids, vocab_size)


def json_rule(schema: Mapping[str, Any]) -> str:
    """What stands behind the colon of a Lark rule whose text is JSON of the schema, on one line with at most
    one space between its parts, as chat templates write it."""
    return f"%json {json.dumps({**schema, 'x-guidance': {'whitespace_pattern': ' '}})}"


def token_rule(text: str, token: int | None) -> str:
    """A piece of a Lark rule: the token itself, where a marker is one, else its text."""
    return json.dumps(text) if token is None else f"<[{token}]>"


@lru_cache(maxsize=64)
def _compiled(
    option: str, text: str, tokenizer: Tokenizer, stop_ids: frozenset[int], vocab_size: int
) -> CompiledGrammar:
    """`text` is a schema where that is the `option`, else Lark."""
    tokens = _tokens(option, tokenizer, stop_ids, vocab_size)
    from llguidance import LLMatcher

    if option == "schema":
        try:
            grammar = LLMatcher.grammar_from_json_schema(text, overrides=_OPTIONS)
        except ValueError as error:  # nested too deeply for its reader
            raise UsageError(f"schema: {_one_line(str(error))}") from None
    else:
        grammar = LLMatcher.grammar_from_lark(text)
    matcher = LLMatcher(tokens, grammar, log_level=0)
    if matcher.is_error():
        raise UsageError(f"{option}: {_one_line(matcher.get_error())}")
    if not any(matcher.compute_bitmask()) or matcher.is_error():
        raise UsageError(
            f"{option}: the model's vocabulary cannot write such a text; give another {option} or model"
        )
    return CompiledGrammar(text if option == "schema" else None, matcher)


@lru_cache(maxsize=8)
def _tokens(option: str, tokenizer: Tokenizer, stop_ids: frozenset[int], vocab_size: int) -> "LLTokenizer":
    """The vocabulary as llguidance reads it: seconds for a large one."""
    try:
        from llguidance import LLTokenizer
    except ImportError:
        raise CapabilityError(
            f'{option}: needs the package llguidance: pip install "branchwise[structured]"'
        ) from None
    if not stop_ids:
        raise CapabilityError(f"{option}: the model has no end token, so its answer cannot end")
    ends = sorted(stop_ids)
    if isinstance(tokenizer, HfTokenizer):
        with suppress(ValueError):  # it does not know every decoder
            return LLTokenizer(tokenizer.to_json(), n_vocab=vocab_size, eos_token=ends)
    words = _Words(tokenizer, ends, vocab_size)
    return LLTokenizer(words, n_vocab=vocab_size, eos_token=ends)  # pyright: ignore[reportArgumentType]  # by shape


class _Words:
    """A tokenizer of another kind, in the shape that llguidance asks for (`TokenizerWrapper`)."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, ends: Sequence[int], vocab_size: int) -> None:
        self.eos_token_id = ends[0]
        self.special_token_ids = sorted({*ends, *_special_ids(tokenizer)})
        self.tokens = [_bytes(tokenizer, token) for token in range(tokenizer.vocab_size)]
        self.tokens += [b""] * (vocab_size - len(self.tokens))
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode(errors="replace"))


def _special_ids(tokenizer: Tokenizer) -> set[int]:
    """Tokens that stand for no text of an answer."""
    if not isinstance(tokenizer, HfTokenizer):
        return set()
    found = [tokenizer.token_id(text) for text in tokenizer.special_tokens.values()]
    return {token for token in found if token is not None}


def _bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """The text of a token; nothing for a part of a character, which is then never written."""
    piece = tokenizer.piece(token) if isinstance(tokenizer, BytePieces) else None
    if piece is not None:
        return piece
    text = tokenizer.decode([token])
    return b"" if "\ufffd" in text else text.encode()


def _one_line(message: str) -> str:
    return f"{' '.join(message.split())[:200].rstrip('.')}; change that part of it"
