"""Plain generation for people who want no search: tokens and text as they come."""

from collections import deque
from collections.abc import AsyncGenerator, Sequence

import anyio
import msgspec

from .checked import checked_text, whole_numbers
from .protocol import Extension, ModelInfo
from .text.detokenize import Detokenizer
from .text.stop import Stop, StopRule
from .text.tokenizer import Tokenizer
from .ticket import Ticket


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """What a generation gained: ids, and the text that is certain by now. `stop` is set on the last chunk
    only.

    Joined, the chunks are the extension: a stop string never shows, not even in part.
    """

    tokens: tuple[int, ...]
    text: str
    stop: Stop | None = None


def encoded(prompt: str | Sequence[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of a prompt that is text, or ids already; `UsageError` where it is neither."""
    if isinstance(prompt, str):
        return tuple(tokenizer.encode(checked_text("prompt", prompt)))
    return whole_numbers("tokens", prompt)


class TextStream:
    """Turns sampled ids into chunks, holding back text that may turn out to be the start of a stop string."""

    def __init__(self, info: ModelInfo, prompt: Sequence[int], rule: StopRule) -> None:
        self._info = info
        self._prompt = prompt
        self._held_back = max((len(string) for string in rule.strings), default=1) - 1
        self._detokenizer = Detokenizer(info.tokenizer, prompt)
        self._text = ""
        self._sent_text = 0
        self._sent_tokens = 0
        self._unsent: deque[tuple[int, int]] = deque()

    def push(self, tokens: Sequence[int]) -> Chunk:
        """The chunk that these ids make certain; it may be empty."""
        for token in tokens:
            self._text += self._detokenizer.push(token)
            self._unsent.append((token, len(self._text)))
        certain = max(len(self._text) - self._held_back, self._sent_text)
        text, self._sent_text = self._text[self._sent_text : certain], certain
        sent: list[int] = []
        while self._unsent and self._unsent[0][1] <= certain:
            sent.append(self._unsent.popleft()[0])
        self._sent_tokens += len(sent)
        return Chunk(tokens=tuple(sent), text=text)

    def end(self, extension: Extension) -> Chunk:
        """The last chunk: what was held back, less what was dropped."""
        whole = Detokenizer(self._info.tokenizer, self._prompt)
        text = "".join(whole.push(token) for token in extension.tokens) + whole.flush()
        return Chunk(
            tokens=extension.tokens[self._sent_tokens :], text=text[self._sent_text :], stop=extension.stop
        )


class TokenBuffer:
    """Ids that were delivered and not yet taken; merges what comes faster than it is read."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._arrived = anyio.Event()

    def put(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)
        self._arrived.set()

    def wake(self) -> None:
        """Nothing more will come."""
        self._arrived.set()

    async def take(self) -> list[int]:
        """All ids since the last call; waits for some, or for `wake`."""
        await self._arrived.wait()
        self._arrived = anyio.Event()
        tokens, self._tokens = self._tokens, []
        return tokens


async def stream_chunks(ticket: Ticket, buffer: TokenBuffer, stream: TextStream) -> AsyncGenerator[Chunk]:
    """The chunks of a running extension. Raises what ended it; the caller cancels it when closed early."""
    ticket.on_end = buffer.wake
    while True:
        tokens = await buffer.take()
        if ticket.ended:
            break
        chunk = stream.push(tokens)
        if chunk.tokens or chunk.text:
            yield chunk
    result = ticket.result()
    assert isinstance(result, Extension)
    yield stream.end(result)
