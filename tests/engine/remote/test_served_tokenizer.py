"""The tokenizer of a server, where no folder of the model is at hand."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.from_thread
import pytest
from branchwise.engine.errors import ModelLoadError, ServerFailed
from branchwise.engine.models.open import open_model
from branchwise.engine.remote.address import parse_address
from branchwise.engine.remote.opening import open_remote
from branchwise.engine.remote.served_tokenizer import ServedTokenizer
from branchwise.engine.text.tokenizer import Message
from branchwise.evals.reference.folders import MODELS_FOLDER
from support.openai_server import StandInServer, serving

FOLDER = MODELS_FOLDER / "policy"


@pytest.fixture(params=[True, False], ids=["tokenizes", "does not"])
def server(request: pytest.FixtureRequest) -> Iterator[StandInServer]:
    """In a thread of its own: the tokenizer's caller waits for it."""
    info = open_model(FOLDER).info
    one = StandInServer(
        lambda ids, seed: 2,
        info.tokenizer,
        info.profile.stop_ids,
        root="/nowhere/else",
        context=512,
        tokenizes=request.param,
    )
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(one)),
    ):
        yield one


@pytest.mark.parametrize("server", [True], indirect=True)
def test_it_is_the_server_s(server: StandInServer):
    here = open_model(FOLDER).info.tokenizer
    there = ServedTokenizer.open(server.url, "policy", {})
    for text in ("", "12+7*3-5;", "<bos>1<eos>", "</think>"):
        assert there.encode(text) == here.encode(text)
        assert there.decode(here.encode(text)) == text
    assert there.chat([Message("user", "1+1")]) == here.chat([Message("user", "1+1")])
    assert there.token_id("</think>") == here.token_id("</think>")
    assert there.token_id("12") is None


@pytest.mark.parametrize("server", [True], indirect=True)
def test_a_model_without_a_folder_here_is_opened_by_it(server: StandInServer):
    async def main() -> None:
        async with await open_remote({"policy": parse_address(f"remote:{server.url}")}, _nowhere) as engine:
            info = engine.models["policy"]
            assert isinstance(info.tokenizer, ServedTokenizer)
            assert (info.max_model_len, info.head) == (512, "lm")
            assert not engine.capabilities.flops
            assert "is not known" in engine.notes[0]

    anyio.run(main)


@pytest.mark.parametrize("server", [False], indirect=True)
def test_a_server_without_it_is_refused_with_both_reasons(server: StandInServer):
    with pytest.raises(ModelLoadError, match="404"):
        ServedTokenizer.open(server.url, "policy", {})
    with pytest.raises(ModelLoadError, match=r"not here.*tokenizer=NAME"):
        anyio.run(open_remote, {"policy": parse_address(f"remote:{server.url}")}, _nowhere)


def test_a_lost_server_is_named():
    tokenizer = ServedTokenizer("http://127.0.0.1:9/v1", "policy", {})
    with pytest.raises(ServerFailed, match=r"127\.0\.0\.1:9/tokenize"):
        tokenizer.encode("a")


def _nowhere(name: str) -> Path:
    raise ModelLoadError(f"{name} is not here")
