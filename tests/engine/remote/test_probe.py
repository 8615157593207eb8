"""What is found out about a server when it is opened."""

from typing import Any

import anyio
import httpx2
import pytest
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.remote.dialect import Dialect
from branchwise.engine.remote.probe import probe
from branchwise.engine.remote.servers import Servers
from support.openai_server import StandInServer, serving
from support.remote import FAST, scripted_server
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
