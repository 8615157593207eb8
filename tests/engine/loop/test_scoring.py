"""Scoring requests on real (tiny, random) models: with the cache as without, and as transformers has it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise.engine.engine import Engine
from branchwise.engine.exec import runner
from branchwise.engine.protocol import EngineUsage, ScoreParams, Unlimited
from support.tiny import save_model

pytestmark = pytest.mark.anyio

METER = Unlimited()
PROMPT = [(position * 7) % 250 for position in range(48)]
CONTINUATIONS = [[(position * (11 + i) + i) % 250 for position in range(30 + i)] for i in range(4)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["Llama", "Gemma2"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    extra: dict[str, Any] = {"sliding_window": 20} if request.param == "Gemma2" else {}
    return folder, save_model(folder, request.param, num_hidden_layers=2, **extra)


def _expected(model: Any, tokens: list[int], start: int) -> list[float]:
    with torch.inference_mode():
        logprobs = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return [float(logprobs[p - 1, tokens[p]]) for p in range(start, len(tokens))]


@pytest.mark.pins("vllm#42019")
@pytest.mark.parametrize("length", [47, 48, 17])
async def test_logprobs_of_continuations_equal_a_run_without_cache(
    pair: tuple[Path, Any], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_SCORE_ROWS", 7)
    folder, model = pair
    prompt = PROMPT[:length]
    engine = await Engine.open_models({"policy": folder}, kv_memory=4 << 20, check=True, max_step_tokens=25)
    async with engine:
        usage = EngineUsage()
        for continuation in CONTINUATIONS:
            tokens = [*prompt, *continuation]
            found = []
            for namespace in ("shared", f"alone {continuation}"):
                seq = engine.open(tokens, seed=0, namespace=namespace, usage=usage)
                scores = await engine.score(seq, ScoreParams(logprobs_from=length), METER)
                found.append(scores.logprobs)
                engine.release(seq)
            assert found[0] == pytest.approx(found[1], abs=1e-5)
            assert found[0] == pytest.approx(_expected(model, tokens, length), abs=1e-4)
        # Three of four reuse the prompt's whole blocks, and compute the row before the first scored token.
        assert usage.cached_tokens == 3 * min(length - 1, length // 16 * 16)


async def test_a_scored_row_that_stands_already_is_read_again(pair: tuple[Path, Any]) -> None:
    folder, model = pair
    tokens = [*PROMPT, *CONTINUATIONS[0]]
    engine = await Engine.open_models({"policy": folder}, kv_memory=4 << 20, check=True)
    async with engine:
        seq = engine.open(tokens, seed=0)
        for start in (len(tokens) - 1, 48, 1):
            scores = await engine.score(seq, ScoreParams(logprobs_from=start), METER)
            assert scores.logprobs == pytest.approx(_expected(model, tokens, start), abs=1e-4)
