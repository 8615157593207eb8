"""Isolation on real (tiny) models, in pairs: what hits, and what misses because its weights, adapter or
namespace are others. A miss is seen as `cached_tokens == 0` and in nothing else.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import EngineClosed, HandleError, ModelLoadError, UsageError
from branchwise.engine.protocol import EngineUsage, Unlimited
from support.checks import extend_params
from support.oracle_engine import OracleEngine
from support.tiny import save_adapter, save_model

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.pins("vllm#30931", "vllm#42125", "vllm#17045", "llama.cpp#26207"),
]

PROMPT = [(position * 7) % 250 for position in range(40)]
WHOLE_BLOCKS = 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two revisions of one model, an adapter for it, and a model of another shape."""
    base = tmp_path_factory.mktemp("reload")
    for name, seed, layers in (("old", 1, 2), ("new", 2, 2), ("deeper", 1, 3)):
        model = save_model(base / name, "Llama", seed=seed, num_hidden_layers=layers)
        if name == "old":
            save_adapter(base / "adapter", model)
    return {name: base / name for name in ("old", "new", "deeper", "adapter")}


async def ask(engine: Engine, namespace: str = "") -> tuple[int, tuple[int, ...]]:
    """Cached positions and tokens of a request."""
    usage = EngineUsage()
    seq = engine.open(PROMPT, seed=3, namespace=namespace, usage=usage)
    tokens = (await engine.extend(seq, extend_params(6), Unlimited())).tokens
    engine.release(seq)
    return usage.cached_tokens, tokens


async def fresh(source: Path, adapter: Path | None = None) -> tuple[int, ...]:
    """The tokens of an engine that never had other weights."""
    adapters = {} if adapter is None else {"policy": adapter}
    async with await Engine.open_models({"policy": source}, adapters=adapters) as engine:
        return (await ask(engine))[1]


async def test_another_namespace_misses_and_gets_the_same_tokens(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        first, again, other = await ask(engine, "a"), await ask(engine, "a"), await ask(engine, "b")
    assert [cached for cached, _ in (first, again, other)] == [0, WHOLE_BLOCKS, 0]
    assert first[1] == again[1] == other[1]


async def test_other_weights_miss_and_those_that_come_back_hit(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        old = [await ask(engine), await ask(engine)]
        digest = engine.models["policy"].weights_digest
        info = await engine.reload("policy", folders["new"])
        assert info is engine.models["policy"]
        assert info.weights_digest != digest
        new = [await ask(engine), await ask(engine)]
        await engine.reload("policy", folders["old"])
        back = await ask(engine)
    assert [cached for cached, _ in (*old, *new, back)] == [0, WHOLE_BLOCKS, 0, WHOLE_BLOCKS, WHOLE_BLOCKS]
    assert old[0][1] == old[1][1] == back[1] == await fresh(folders["old"])
    assert new[0][1] == new[1][1] == await fresh(folders["new"])
    assert old[0][1] != new[0][1]


async def test_an_adapter_misses_and_its_base_hits_again(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        plain = await ask(engine)
        await engine.reload("policy", folders["old"], adapter=folders["adapter"])
        adapted = [await ask(engine), await ask(engine)]
        await engine.reload("policy", folders["old"])
        back = await ask(engine)
    assert [cached for cached, _ in (plain, *adapted, back)] == [0, 0, WHOLE_BLOCKS, WHOLE_BLOCKS]
    assert adapted[0][1] == adapted[1][1] == await fresh(folders["old"], folders["adapter"])
    assert plain[1] == back[1] != adapted[0][1]


async def test_open_sequences_refuse_a_reload(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        seq = engine.open(PROMPT, seed=3)
        with pytest.raises(HandleError, match="1 sequences are open; release them before 'policy' gets"):
            await engine.reload("policy", folders["new"])
        async with anyio.create_task_group() as group:
            group.start_soon(engine.extend, seq, extend_params(30), Unlimited())
            await anyio.lowlevel.checkpoint()
            with pytest.raises(HandleError):
                await engine.reload("policy", folders["new"])
            group.cancel_scope.cancel()
        engine.release(seq)
        await engine.reload("policy", folders["new"])
        assert (await ask(engine))[1] == await fresh(folders["new"])


async def test_a_sequence_that_is_opened_during_the_load_refuses_it(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        refused: list[HandleError] = []

        async def reload() -> None:
            try:
                await engine.reload("policy", folders["new"])
            except HandleError as error:
                refused.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(reload)
            await anyio.lowlevel.checkpoint()
            engine.open(PROMPT, seed=3)
        assert len(refused) == 1
        assert engine.models["policy"].source == str(folders["old"])


async def test_what_cannot_take_the_place_is_refused_and_changes_nothing(folders: dict[str, Path]) -> None:
    async with await Engine.open_models({"policy": folders["old"]}, check=True) as engine:
        before = await ask(engine)
        with pytest.raises(ModelLoadError, match="has another shape than"):
            await engine.reload("policy", folders["deeper"])
        with pytest.raises(ModelLoadError, match="no model at"):
            await engine.reload("policy", folders["old"].parent / "nowhere")
        with pytest.raises(UsageError, match="no model 'draft' is open"):
            await engine.reload("draft", folders["new"])
        assert await ask(engine) == (WHOLE_BLOCKS, before[1])
    with pytest.raises(EngineClosed):
        await engine.reload("policy", folders["new"])


async def test_a_model_without_a_source_is_not_replaced(folders: dict[str, Path]) -> None:
    async with OracleEngine().engine as engine:
        with pytest.raises(UsageError, match="was not opened from a source"):
            await engine.reload("policy", folders["new"])
