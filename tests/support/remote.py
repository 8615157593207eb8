"""Remote engines over servers of the test, a text that they write, and a meter that counts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import httpx2
from branchwise.engine.protocol import ExtendParams, ModelInfo, Verdict, Work
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.engine import RemoteEngine
from branchwise.engine.remote.model import RemoteModel
from branchwise.engine.remote.servers import RetryPolicy, Servers
from branchwise.engine.sampling.params import GREEDY
from branchwise.engine.text.stop import StopRule, Until
from support.openai_server import Server, StandInServer, serving
from support.scripted import EOS, Script, ScriptedEngine

FAST = RetryPolicy(attempts=3, first_s=0.001, longest_s=0.002, down_s=0.05)
FULL = Dialect(most_alternatives=20)
PROMPT = [ord(c) for c in "Q:"]
END = frozenset({ord(EOS)})
TEXT = "ab;cd;ef|42$"
"""What `script` writes behind the prompt."""


def scripted_info(script: Script, name: str = "policy", **options: object) -> ModelInfo:
    """The facts of a model of characters."""
    return ScriptedEngine({name: script}, **options).models[name]  # pyright: ignore[reportArgumentType]


def scripted_server(script: Script, name: str = "policy", **options: object) -> StandInServer:
    """A server that writes a script's characters."""
    info = scripted_info(script, name)

    def write(ids: Sequence[int], seed: int) -> int:
        return ord((script(info.tokenizer.decode(ids), seed) or "$")[0])

    return StandInServer(
        write,
        info.tokenizer,
        info.profile.stop_ids,
        name=name,
        **options,  # pyright: ignore[reportArgumentType]
    )


def remote_engine(
    models: Mapping[str, tuple[ModelInfo, Sequence[Server]]],
    *,
    dialect: Dialect = FULL,
    retry: RetryPolicy = FAST,
    lease_tokens: int = 8,
) -> RemoteEngine:
    """An engine over servers that run already."""
    http = httpx2.AsyncClient(timeout=5.0, limits=httpx2.Limits(max_connections=None))
    hosted = {
        name: RemoteModel(
            info=info,
            served=name,
            servers=Servers(http, [server.url for server in servers], retry),
            dialect=dialect,
        )
        for name, (info, servers) in models.items()
    }
    return RemoteEngine(hosted, http, lease_tokens=lease_tokens)


class Purse:
    """A meter of `tokens`; what it granted, minus what came back, never passes them."""

    def __init__(self, tokens: int = 1 << 30) -> None:
        self.left = tokens
        self.committed: list[Work] = []
        self.refunded = 0

    @property
    def paid(self) -> int:
        """Tokens that were written."""
        return sum(work.tokens for work in self.committed)

    def grant(self, work: Work) -> Verdict:
        if work.tokens > self.left:
            return Verdict.REFUSED
        self.left -= work.tokens
        return Verdict.GRANTED

    def commit(self, work: Work) -> None:
        self.committed.append(work)

    def refund(self, work: Work) -> None:
        self.left += work.tokens
        self.refunded += work.tokens


def script(text: str, seed: int) -> str:
    """One text for all, whatever the seed."""
    return TEXT[len(text) - len(PROMPT) :]


def run(body: Callable[[RemoteEngine], Awaitable[Any]], *servers: Server, **options: Any) -> Any:
    """`body` on an engine over the servers; nothing may be left in it."""
    given = {name: options.pop(name) for name in ("profile",) if name in options}
    info = scripted_info(options.pop("script", script), max_model_len=options.pop("context", 400), **given)

    async def main() -> Any:
        async with serving(*servers):
            engine = remote_engine({"policy": (info, servers)}, **options)
            async with engine:
                with anyio.fail_after(10):
                    result = await body(engine)
            assert engine._ahead == 0
            return result

    return anyio.run(main)


def extending(until: Until = Until.END, max_tokens: int = 100, **options: Any) -> ExtendParams:
    """Greedily, as far as `until`; options of `StopRule`."""
    sampling, constraint = options.pop("sampling", GREEDY), options.pop("constraint", None)
    rule = StopRule(until=until, eos_ids=END, **options)
    return ExtendParams(sampling=sampling, stop=rule, max_tokens=max_tokens, constraint=constraint)


def text_of(tokens: Sequence[int]) -> str:
    """The characters of ids."""
    return "".join(map(chr, tokens))
