"""What is found out about a server when it is opened."""

from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
import pytest
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.models.open import open_model
from branchwise.engine.remote.address import RemoteAddress
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.opening import open_remote
from branchwise.engine.remote.probe import probe
from branchwise.engine.remote.servers import Servers
from branchwise.evals.reference.folders import MODELS_FOLDER
from support.openai_server import StandInServer, serving
from support.remote import END, FAST, scripted_server
from support.scripted import CharTokenizer


def found(server: StandInServer, served: str = "policy") -> Dialect:
    async def main() -> Dialect:
        async with serving(server), httpx2.AsyncClient() as http:
            return await probe(Servers(http, [server.url], FAST), server.url, served, CharTokenizer())

    return anyio.run(main)


@pytest.mark.parametrize(
    ("options", "dialect"),
    [
        ({}, Dialect(most_alternatives=20)),
        ({"most_logprobs": 5}, Dialect(most_alternatives=5)),
        ({"least_tokens": 1}, Dialect(most_alternatives=20, echo_tokens=1)),
        ({"least_tokens": 2}, Dialect(most_alternatives=20, scores=False)),
        (
            {"extensions": False},
            Dialect(most_alternatives=5, extensions=False, ids_out=False, restricts=""),
        ),
        (
            {"extensions": False, "ids": False},
            Dialect(
                most_alternatives=5, extensions=False, ids_in=False, ids_out=False, scores=False, restricts=""
            ),
        ),
    ],
)
def test_a_server_is_asked_in_the_best_way_that_it_takes(options: dict[str, Any], dialect: Dialect):
    assert found(scripted_server(lambda text, seed: "a", **options)) == dialect


def test_a_server_that_completes_nothing_is_refused_with_what_it_says():
    with pytest.raises(ModelLoadError, match="400 no model other"):
        found(scripted_server(lambda text, seed: "a"), "other")


def test_a_server_that_ignores_what_may_come_is_found_out():
    assert found(scripted_server(lambda text, seed: "a", restriction="")).restricts == ""
    assert found(scripted_server(lambda text, seed: "a", restriction="logit_bias")).restricts == "logit_bias"


def test_a_server_whose_ids_stand_for_other_text_is_refused():
    class Shifted(CharTokenizer):
        def decode(self, ids: Sequence[int]) -> str:
            return "".join(chr(token + 1) for token in ids)

    with pytest.raises(ModelLoadError, match=r"other tokens.*tokenizer=NAME"):
        found(StandInServer(lambda ids, seed: 97, Shifted(), END))


def test_the_context_is_the_shortest_of_all_servers():
    folder = MODELS_FOLDER / "policy"
    info = open_model(folder).info

    def server(context: int) -> StandInServer:
        return StandInServer(lambda ids, seed: 2, info.tokenizer, info.profile.stop_ids, context=context)

    servers = server(400), server(300)

    async def main() -> int:
        async with serving(*servers):
            address = RemoteAddress(urls=tuple(one.url for one in servers))
            async with await open_remote({"policy": address}, lambda name: folder) as engine:
                return engine.models["policy"].max_model_len

    assert anyio.run(main) == 300
