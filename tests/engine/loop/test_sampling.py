"""Sampling parameters at the facade: refused at the call where they name no token, and failing alone."""

import anyio
import pytest
from branchwise.engine.errors import SamplingError, UsageError
from branchwise.engine.protocol import Extension, SeqId, Unlimited
from branchwise.engine.sampling.params import SamplingParams
from support.checks import extend_params
from support.oracle import EOS, NaiveEngine
from support.oracle_engine import OracleEngine

pytestmark = pytest.mark.anyio

PROMPT = list(range(1, 12))
METER = Unlimited()


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (
            SamplingParams(allowed_tokens=(3, 50)),
            "allowed_tokens has token id 50; the vocabulary of 'policy'",
        ),
        (
            SamplingParams(logit_bias={77: 1.0}),
            "logit_bias has token id 77; the vocabulary of 'policy' is 0 to 49",
        ),
    ],
)
async def test_ids_outside_the_vocabulary_are_refused_at_once(sampling: SamplingParams, message: str) -> None:
    async with OracleEngine().engine as engine:
        seq = engine.open(PROMPT, seed=1)
        with pytest.raises(UsageError, match=message):
            await engine.extend(seq, extend_params(2, sampling=sampling), METER)
        assert (await engine.extend(seq, extend_params(2), METER)).generated == 2


async def test_a_row_without_a_token_fails_its_caller_and_the_engine_goes_on() -> None:
    nothing = SamplingParams(allowed_tokens=(EOS,), min_tokens=1)
    extensions: list[Extension] = []
    async with OracleEngine().engine as engine:
        bad, good = engine.open(PROMPT, seed=1), engine.open(PROMPT, seed=2)

        async def run(seq: SeqId) -> None:
            extensions.append(await engine.extend(seq, extend_params(4), METER))

        async with anyio.create_task_group() as group:
            group.start_soon(run, good)
            with pytest.raises(SamplingError, match="nothing is left to draw"):
                await engine.extend(bad, extend_params(4, sampling=nothing, eos_ids=frozenset({EOS})), METER)
        assert list(extensions[0].tokens) == NaiveEngine.extend(PROMPT, 2, extend_params(4), 99)[0]
        again = await engine.extend(bad, extend_params(4), METER)
        assert list(again.tokens) == NaiveEngine.extend(PROMPT, 1, extend_params(4), 99)[0]
