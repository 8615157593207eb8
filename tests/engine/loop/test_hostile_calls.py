"""Values of a wrong type or range: the caller gets one line, and nobody else notices."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
import torch
from branchwise.engine.drafting.params import DraftModel, Ngram, Suffix
from branchwise.engine.engine import Engine
from branchwise.engine.errors import UsageError
from branchwise.engine.protocol import ExtendParams, Extension, ScoreParams, Unlimited
from branchwise.engine.sampling.params import GREEDY
from branchwise.engine.text.stop import Stop, StopRule
from support.checks import extend_params
from support.oracle_engine import OracleEngine

METER = Unlimited()
REFERENCE = Path(__file__).parents[3] / "evals" / "reference" / "models"
NAN = float("nan")


def _params(**fields: Any) -> ExtendParams:
    return ExtendParams(**{"sampling": GREEDY, "stop": StopRule(), "max_tokens": 3} | fields)


def _made(kind: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
    return kind(**fields)


def _any(value: object) -> Any:
    """The value without its type, which the checker would refuse."""
    return value


WRONG: dict[str, Callable[[Any], Any]] = {
    **{
        f"open {value!r}": lambda engine, value=value: engine.open(_any(value), seed=1)
        for value in ([1.5], [NAN], ["a"], [None], "abc", 5, None, [])
    },
    **{
        f"seed {value!r}": lambda engine, value=value: engine.open([3], seed=_any(value))
        for value in (1.5, NAN, "x", None)
    },
    **{
        f"namespace {value!r}": lambda engine, value=value: engine.open([3], seed=1, namespace=_any(value))
        for value in (None, 5, b"x", "\ud800")
    },
    **{
        f"tenant {value!r}": lambda engine, value=value: engine.open([3], seed=1, tenant=_any(value))
        for value in (5, ("a",))
    },
    "usage": lambda engine: engine.open([3], seed=1, usage=_any(5)),
    **{
        f"{verb} {value!r}": lambda engine, verb=verb, value=value: getattr(engine, verb)(_any(value))
        for verb in ("park", "release", "unpin")
        for value in ([], None, "x")
    },
    **{
        f"fork {value!r}": lambda engine, value=value: engine.fork(engine.open([3], seed=1), _any(value))
        for value in ([1.5], ["x"], [None], 5)
    },
    **{
        f"append {value!r}": lambda engine, value=value: engine.append(engine.open([3], seed=1), _any(value))
        for value in ([1.5], ["x"], None)
    },
    **{
        f"truncate {value!r}": lambda engine, value=value: engine.truncate(engine.open([3, 4], seed=1), value)
        for value in (1.5, None, "x", NAN)
    },
    **{
        f"extend {fields!r}": lambda engine, fields=fields: _params(**fields)
        for fields in (
            {"max_tokens": None},
            {"max_tokens": NAN},
            {"order": None},
            {"order": (None,)},
            {"priority": NAN},
            {"priority": "a"},
            {"sampling": None},
            {"stop": 5},
            {"speculate": "ngram"},
        )
    },
    **{
        f"score {fields!r}": lambda engine, fields=fields: _made(ScoreParams, fields)
        for fields in ({"logprobs_from": 1.5}, {"reward_at": (0.5,)}, {"order": 5}, {"priority": None})
    },
    **{
        f"stop {fields!r}": lambda engine, fields=fields: _made(StopRule, fields)
        for fields in (
            {"eos_ids": {"a"}},
            {"eos_ids": None},
            {"strings": (5,)},
            {"strings": ("",)},
            {"tokens_per_step": 0},
            {"until": "foo"},
        )
    },
    **{
        f"{kind.__name__} {fields!r}": lambda engine, kind=kind, fields=fields: _made(kind, fields)
        for kind, fields in (
            (Ngram, {"k": 0}),
            (Ngram, {"k": 10**6}),
            (Suffix, {"width": 0}),
            (DraftModel, {"k": "x"}),
        )
    },
}


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_value_is_refused_in_its_own_frame(wrong: str) -> None:
    rig = OracleEngine()
    found: list[Extension] = []

    async def other() -> None:
        found.append(await rig.engine.extend(rig.engine.open([1, 2], seed=3), extend_params(5), METER))

    async with rig.engine, anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(UsageError) as raised:
            WRONG[wrong](rig.engine)
        assert "\n" not in str(raised.value)
    assert [each.stop in (Stop.LENGTH, Stop.EOS) for each in found] == [True]


@pytest.mark.anyio
@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple, lambda ids: list(np.array(ids))])
async def test_integers_of_other_libraries_are_integers(make: Callable[[list[int]], Any]) -> None:
    rig = OracleEngine()
    async with rig.engine as engine:
        plain = await engine.extend(engine.open([3, 4, 5], seed=7), extend_params(5), METER)
        seq = engine.open(make([3, 4]), seed=make([7])[0])
        engine.append(seq, make([5]))
        assert await engine.extend(seq, extend_params(5), METER) == plain


@pytest.mark.anyio
@pytest.mark.parametrize(
    "fields", [{"threads": 0}, {"threads": 10**6}, {"block_size": 0}, {"block_size": -1}, {"sources": {}}]
)
async def test_an_engine_of_no_possible_size_is_refused(fields: dict[str, Any]) -> None:
    fields = dict(fields)
    sources = fields.pop("sources", {"policy": REFERENCE / "policy"})
    with pytest.raises(UsageError):
        await Engine.open_models(sources, **fields)
