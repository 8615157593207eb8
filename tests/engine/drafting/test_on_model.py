"""Speculation on real tensors: the same bits with drafts and trees, in torch and in native operators, and KV
as a fresh prefill leaves it."""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from branchwise.engine.drafting.params import DraftModel, Ngram, Speculate, Suffix
from branchwise.engine.exec.runner import Runner
from branchwise.engine.models.open import LoadedModel, open_model
from branchwise.engine.protocol import EngineUsage, Extension, ModelCost, SeqId
from branchwise.engine.sampling.params import GREEDY, SamplingParams
from branchwise.engine.sched.plan import ModelPlan, Span
from branchwise.engine.sched.scheduler import StepLimits
from branchwise.engine.sched.sequence import Sequence as EngineSequence
from support.checks import Rig, extend_params
from support.drafters import SteeredDrafter, steer
from support.tiny import save_model

BLOCKS, SIZE = 120, 16
PROMPT = [(37 * i * i + 11 * i + 5) % 250 for i in range(27)]
PAYS = StepLimits(verify_fixed_rows=1000.0)
UNSOUND = 77
"""Its embedding is not finite in the model `unsound`."""

SAMPLED = SamplingParams(temperature=0.8, top_p=0.95)
METHODS: list[Speculate] = [
    Ngram(k=4),
    Suffix(k=6),
    Suffix(k=6, width=3),
    DraftModel(k=4),
    DraftModel(k=4, width=3),
]


class Recorded(SteeredDrafter):
    """Proposes what plain runs wrote, with errors: several paths, each wrong from a random place on."""

    def __init__(self, texts: Mapping[SeqId, Sequence[int]], wrong: Sequence[int], seed: int) -> None:
        super().__init__(lambda k: k)
        self._texts = texts
        self._wrong = wrong
        self._rng = random.Random(seed)

    def propose(self, sequence: EngineSequence, k: int, paths: int) -> Sequence[Sequence[int]]:
        text = self._texts[sequence.id][sequence.known - len(PROMPT) :][:k]
        found = []
        for _ in range(paths):
            right = self._rng.randint(0, len(text))
            found.append([*text[:right], *[self._rng.choice(self._wrong)] * (k - right)][:k])
        return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A policy, a draft model near it, and a policy with an embedding that is not finite."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("policy", "draft", "unsound")}
    torch.manual_seed(3)
    for name, folder in found.items():
        model = save_model(folder, "Llama")
        with torch.no_grad():
            if name == "draft":
                for parameter in model.parameters():
                    parameter += torch.randn_like(parameter) * 0.01
            if name == "unsound":
                model.model.embed_tokens.weight[UNSOUND] = math.nan
        model.save_pretrained(folder)
    return found


@pytest.fixture(params=["native", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setenv("BRANCHWISE_NATIVE", "0")
    return request.param


def make(
    folders: dict[str, Path],
    policy: str = "policy",
    *,
    deterministic: bool = True,
    limits: StepLimits = PAYS,
) -> Rig:
    models: dict[str, LoadedModel] = {
        role: open_model(folders[source], name=role)
        for role, source in (("policy", policy), ("draft", "draft"))
    }
    cheap = msgspec.structs.replace(models["draft"].info, cost=ModelCost(1, 1, 1, 1, 1))
    rig = Rig(BLOCKS, SIZE, infos=[models["policy"].info, cheap], limits=limits)
    for role, model in models.items():
        runner = Runner(model, BLOCKS, block_size=SIZE, deterministic=deterministic)
        rig.runners[role] = runner  # pyright: ignore[reportArgumentType]
    return rig


def policy_runner(rig: Rig) -> Runner:
    runner = rig.runners["policy"]
    assert isinstance(runner, Runner)
    return runner


def siblings(
    rig: Rig, speculate: Speculate | None, sampling: SamplingParams, usage: EngineUsage | None = None
) -> dict[SeqId, Extension]:
    """Three siblings of 40 tokens each."""
    children = rig.fork(rig.open(PROMPT, seed=1, usage=usage), [11, 12, 13])
    params = extend_params(40, sampling=sampling, speculate=speculate)
    requests = {child: rig.extend(child, params) for child in children}
    rig.run()
    return {child: rig.extension(request) for child, request in requests.items()}


@pytest.mark.parametrize(
    "sampling",
    [SAMPLED, GREEDY, SamplingParams(repetition_penalty=1.2)],
    ids=["sampled", "greedy", "penalised"],
)
@pytest.mark.pins("vllm#7627", "vllm#41758", "llama.cpp#27972")
def test_tokens_and_logprobs_are_bitwise_those_without_drafts(
    folders: dict[str, Path], kernels: str, sampling: SamplingParams
) -> None:
    plain = siblings(make(folders), None, sampling)
    for method in METHODS:
        usage = EngineUsage()
        found = siblings(make(folders), method, sampling, usage)
        assert [(one.tokens, one.logprobs) for one in found.values()] == [
            (one.tokens, one.logprobs) for one in plain.values()
        ]
        if isinstance(method, DraftModel):
            assert usage.accepted_tokens > 0
    for width in (1, 3):
        rig, usage = make(folders), EngineUsage()
        steer(
            rig.scheduler.speculation,
            Recorded({child: one.tokens for child, one in plain.items()}, range(250), width),
        )
        found = siblings(rig, Suffix(k=6, width=width), sampling, usage)
        assert [(one.tokens, one.logprobs) for one in found.values()] == [
            (one.tokens, one.logprobs) for one in plain.values()
        ]
        assert 0 < usage.accepted_tokens < usage.draft_tokens


@pytest.mark.pins("openvino.genai#4190", "mlxcel#994", "vllm#56734")
def test_the_kv_behind_trees_is_bitwise_that_of_a_fresh_prefill(
    folders: dict[str, Path], kernels: str
) -> None:
    plain = siblings(make(folders), None, SAMPLED)
    rig = make(folders)
    texts = {child: one.tokens for child, one in plain.items()}
    steer(rig.scheduler.speculation, Recorded(texts, range(250), 5))
    siblings(rig, Suffix(k=6, width=3), SAMPLED)
    fresh = Runner(policy_runner(rig).model, 20, block_size=SIZE, deterministic=True)
    for child in texts:
        sequence = rig.scheduler.family.sequences[child]
        tokens = tuple(sequence.tokens[: sequence.computed])
        blocks = tuple(range(1, 1 + len(sequence.table)))
        fresh.execute(ModelPlan(model="policy", spans=(Span(SeqId(1), 0, tokens, blocks, 0),)))
        tail = range(len(tokens), SIZE * len(blocks))
        if tail:  # what was rejected may stand there, and nobody looks at it
            policy_runner(rig).clear_positions(sequence.table.blocks, tail)
            fresh.clear_positions(blocks, tail)
        ours = policy_runner(rig).cache.blocks[:, :, list(sequence.table.blocks)]
        theirs = fresh.cache.blocks[:, :, list(blocks)]
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "fast"])
def test_a_rejected_token_whose_row_is_not_finite_leaves_nothing(
    folders: dict[str, Path], kernels: str, deterministic: bool
) -> None:
    """Its keys and values may not reach the rows before it, nor those that are computed later."""
    sampling = SamplingParams(logit_bias={UNSOUND: -math.inf})
    plain = siblings(make(folders, "unsound", deterministic=deterministic), None, sampling)
    for width in (1, 3):
        rig, usage = make(folders, "unsound", deterministic=deterministic), EngineUsage()
        texts = {child: one.tokens for child, one in plain.items()}
        steer(rig.scheduler.speculation, Recorded(texts, [UNSOUND], 7))
        found = siblings(rig, Suffix(k=4, width=width), sampling, usage)
        assert [one.tokens for one in found.values()] == [one.tokens for one in plain.values()]
        assert usage.accepted_tokens > 0
        for child in texts:
            blocks = list(rig.blocks(child))
            assert bool(policy_runner(rig).cache.blocks[:, :, blocks].isfinite().all())


@pytest.mark.parametrize("model", ["near", "same"])
def test_the_ratio_test_gives_one_text_per_seed(folders: dict[str, Path], kernels: str, model: str) -> None:
    method = DraftModel(k=4, verify="ratio")
    if model == "same":
        folders = {**folders, "draft": folders["policy"]}
    texts, usages = [], []
    for limits in (PAYS, StepLimits(verify_fixed_rows=1000.0, max_rows=5)):
        rig, usage = make(folders, limits=limits), EngineUsage()
        texts.append([one.tokens for one in siblings(rig, method, SAMPLED, usage).values()])
        usages.append(usage)
    assert texts[0] == texts[1]
    assert usages[0].accepted_tokens > 0
    if model == "same":
        # All but the rows behind the end of a sibling: those are asked for again.
        assert usages[0].accepted_tokens >= usages[0].draft_tokens - 2
