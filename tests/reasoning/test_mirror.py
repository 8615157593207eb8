"""A scorer with its own tokenizer and template follows a branch: each step is encoded and computed once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from branchwise.engine.engine import Engine
from branchwise.engine.errors import CapabilityError
from branchwise.engine.protocol import SeqId
from branchwise.engine.text.step_format import Scorer, StepFormat
from branchwise.engine.text.stop import Stop
from branchwise.reasoning.branch import SearchBranch
from branchwise.reasoning.budget import Budget
from branchwise.reasoning.graph import Node
from branchwise.reasoning.lease import BranchLease
from branchwise.reasoning.mirror import Reading, StepMirror
from branchwise.reasoning.reasoner import Reasoner
from branchwise.reasoning.settle import Settler
from branchwise.reasoning.solution import Reason, Solution
from branchwise.strategies.base import Branch, Search, Strategy
from branchwise.verifiers.aggregate import Aggregation
from branchwise.verifiers.problem import Problem
from branchwise.verifiers.reward import RewardVerifier
from support.scorers import SavedScorer, published_scores, save_scorer
from support.scripted import CharTokenizer
from support.searching import outside_engine
from support.tiny import save_model

PROBLEM = "How many are 3 and 4?"
STEP = 24
PUBLISHED = [scorer for scorer in Scorer if scorer is not Scorer.CLASSIFICATION]


class RecordingBackend:
    """Keeps one sequence's ids, and what was appended and dropped."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.ids = list(prompt)
        self.appended = 0

    def append(self, seq: SeqId, tokens: Sequence[int]) -> None:
        self.ids.extend(tokens)
        self.appended += len(tokens)

    def truncate(self, seq: SeqId, position: int) -> None:
        del self.ids[position:]


def _mirror(prompt: str = "Q:") -> tuple[StepMirror, RecordingBackend]:
    letters = CharTokenizer()
    form = StepFormat(opening="", ending="", lead="<", joint="|", mark="#")
    backend: Any = RecordingBackend(letters.encode(prompt))
    reading = Reading(form, letters, letters, frozenset({ord("$")}))
    return StepMirror(backend, SeqId(1), reading, len(prompt)), backend


def _text(backend: RecordingBackend) -> str:
    return "".join(map(chr, backend.ids))


BRANCH = [ord(letter) for letter in "ab;cd;e;fgh;$"]


def test_each_step_is_appended_once() -> None:
    mirror, backend = _mirror()
    assert mirror.rows(BRANCH[:6], [2, 5]) == (6, 11)
    assert _text(backend) == "Q:<ab;#|cd;#"
    assert mirror.rows(BRANCH[:8], [7]) == (15,)
    assert mirror.rows(BRANCH[:8], [2, 7]) == (6, 15)
    assert (_text(backend), backend.appended) == ("Q:<ab;#|cd;#|e;#", 14)


def test_unscored_steps_are_read_with_the_next_scored_one_and_end_ids_are_left_out() -> None:
    mirror, backend = _mirror()
    mirror.rows(BRANCH, [7, 12])
    assert _text(backend) == "Q:<ab;cd;e;#|fgh;#"


def test_truncation_keeps_whole_steps() -> None:
    mirror, backend = _mirror()
    mirror.rows(BRANCH, [2, 5, 7])
    mirror.truncate(7)
    assert _text(backend) == "Q:<ab;#|cd;#"
    assert mirror.rows([*BRANCH[:6], ord("z"), ord(";")], [7]) == (15,)
    assert _text(backend) == "Q:<ab;#|cd;#|z;#"


def test_a_step_that_turns_out_to_be_two_is_read_again() -> None:
    mirror, backend = _mirror()
    mirror.rows(BRANCH, [2, 7])
    assert mirror.rows(BRANCH, [5]) == (11,)
    assert _text(backend) == "Q:<ab;#|cd;#|e;#"


def test_a_child_keeps_the_steps_and_goes_its_own_way() -> None:
    mirror, backend = _mirror()
    mirror.rows(BRANCH, [2, 5])
    child = mirror.child(SeqId(2))
    mirror.rows(BRANCH, [7])
    assert (mirror.length, child.length) == (16, 12)
    assert child.rows(BRANCH, [2]) == (6,)
    assert backend.appended == 14


def test_positions_belong_to_the_nodes_of_their_steps() -> None:
    mirror, _ = _mirror()
    mirror.rows(BRANCH, [2, 7])
    nodes = [
        Node(id=str(index), branch="0", kind="step", start=start, seed=0)
        for index, start in enumerate((0, 9, 12, 15))
    ]
    nodes[0].length = 9
    holders, starts = mirror.layout(nodes)
    assert [node.id for node in holders] == ["0", "1", "3"]
    assert starts == [0, 2, 7]
    assert mirror.length == 14


# On the engine


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "policy"
    save_model(folder, "Llama", num_hidden_layers=1, max_position_embeddings=512)
    (folder / "branchwise.json").write_text(json.dumps({"profile": {"stop": ["<|im_end|>"]}}))
    return folder


@pytest.fixture(scope="module", params=PUBLISHED)
def scorer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Scorer, SavedScorer]:
    folder = tmp_path_factory.mktemp("models") / "prm"
    folder.mkdir()
    saved = save_scorer(folder, request.param, seed=3, num_hidden_layers=1, max_position_embeddings=4096)
    (folder / "branchwise.json").write_text(json.dumps({"scorer": str(request.param)}))
    return request.param, saved


class Tree(Strategy, tag="mirror_tree", frozen=True):
    """Forks, scores, prunes, truncates: `seen` gets the step texts and scores of every evaluation. A step
    that was cut counts into the next one."""

    seen: Any

    async def run(self, search: Search) -> None:
        beams: list[Branch] = [search.root]
        for depth in range(3):
            children = [child for beam in beams for child in beam.fork(2)]
            for child in children:
                await child.extend()
                await self._score(child)
            for child in children[1::2]:
                child.prune("every second")
            beams = children[::2]
            if depth == 1:
                beams[0].truncate(STEP + 5)
                await beams[0].extend()
                await self._score(beams[0])
        search.offer(beams[0])

    async def _score(self, branch: Branch) -> None:
        score = await branch.evaluate()
        texts = [""]
        for step in branch.steps:
            texts[-1] += step.text
            if step.stop is Stop.MARK:
                texts.append("")
        self.seen.append((texts[:-1], score))


def _solve(
    policy: Path, prm: Path, strategy: Strategy, budget: Budget, **options: Any
) -> tuple[Solution, Engine]:
    """Run a search; afterwards no block is owned."""
    settler = Settler()
    shape: dict[str, Any] = {"kv_memory": 4 << 20, "check": True, **options}

    async def main() -> tuple[Solution, Engine]:
        models = {"policy": policy, "prm": prm}
        engine = await Engine.open_models(models, settle=settler.settle, due=settler.due, **shape)
        async with engine, Reasoner.over(engine, settler=settler) as reasoner:
            verifier = RewardVerifier(Aggregation.MEAN)
            solution = await reasoner.solve(
                Problem(text=PROBLEM), strategy, budget, seed=4, step=f"tokens:{STEP}", verifier=verifier
            )
            applied = anyio.Event()
            token = anyio.lowlevel.current_token()
            engine.post(lambda: anyio.from_thread.run_sync(applied.set, token=token))
            await applied.wait()
            assert all(memory.pool.owned == 0 for memory in engine.scheduler.memories.values())
        return solution, engine

    return anyio.run(main)


def test_scores_equal_the_model_card_over_fork_prune_and_truncate(
    policy: Path, scorer: tuple[Scorer, SavedScorer]
) -> None:
    kind, saved = scorer
    seen: list[Any] = []
    solution, _ = _solve(policy, saved.folder, Tree(seen), Budget(tokens=2000))
    assert solution.reason is Reason.EXHAUSTED
    assert len(seen) == 2 + 2 + 1 + 2
    for texts, score in seen:
        steps = [text.strip() for text in texts]
        assert score.steps == pytest.approx(published_scores(saved, kind, PROBLEM, steps), abs=1e-4)
    assert solution.graph.flops_spent == solution.usage.flops


class Beam(Strategy, tag="mirror_beam", frozen=True):
    """`width` beams with four children each, all scored after every step."""

    width: int = 2
    depth: int = 4

    async def run(self, search: Search) -> None:
        async def grow(branch: Branch) -> None:
            await branch.extend()
            await branch.evaluate()

        beams: list[Branch] = [search.root]
        for _ in range(self.depth):
            children = [child for beam in beams for child in beam.fork(4)]
            async with search.each(children, grow) as done:
                grown = [child async for child in done]
            grown.sort(key=lambda branch: -(branch.score or 0.0))
            for child in grown[self.width :]:
                child.prune("not among the best")
            beams = grown[: self.width]
        search.offer(beams[0])


@pytest.fixture
def qwen_prm(tmp_path: Path) -> Path:
    save_scorer(tmp_path, Scorer.QWEN_MATH, seed=3, num_hidden_layers=1, max_position_embeddings=4096)
    return tmp_path


def _scored_ids(solution: Solution, prm: Path) -> tuple[int, int]:
    """Lengths, in the scorer's ids, of its prompt and of all steps of the graph."""
    from branchwise.engine.models.open import open_model

    info = open_model(prm).info
    assert info.steps is not None
    encode = info.tokenizer.encode
    steps = [node for node in solution.graph.nodes() if node.stop == "mark"]
    return len(info.steps.prompt(PROBLEM, encode)), sum(
        len(info.steps.step(1, n.text, encode)) for n in steps
    )


def test_a_beam_computes_and_pays_every_position_of_the_scorer_once(policy: Path, qwen_prm: Path) -> None:
    solution, _ = _solve(policy, qwen_prm, Beam(), Budget(tokens=4000))
    prompt, steps = _scored_ids(solution, qwen_prm)
    assert solution.usage.scored_tokens == prompt + steps
    # What siblings read at the same time may be computed more than once, within a block.
    assert prompt + steps <= solution.usage.engine["score_tokens"] <= prompt + steps + 16 * 28
    assert solution.graph.flops_spent == solution.usage.flops


def test_nothing_depends_on_the_engine_beside_it(policy: Path, qwen_prm: Path) -> None:
    budget = Budget(tokens=250)
    expected, _ = _solve(policy, qwen_prm, Beam(), budget, deterministic=True)
    for options in ({"max_step_tokens": 7}, {"kv_memory": 1 << 19, "block_size": 32}):
        found, _ = _solve(policy, qwen_prm, Beam(), budget, deterministic=True, **options)
        assert outside_engine(found) == outside_engine(expected)


def test_a_scorer_whose_context_ends_says_so(policy: Path, tmp_path: Path) -> None:
    save_scorer(tmp_path, Scorer.QWEN_MATH, num_hidden_layers=1, max_position_embeddings=180)
    seen: list[Any] = []
    solution, _ = _solve(policy, tmp_path, Tree(seen), Budget(tokens=2000))
    assert solution.reason is Reason.EXHAUSTED
    assert {score.detail for _, score in seen} == {"", "context of the reward model"}


def test_a_scorer_neither_extends_nor_gives_log_probabilities(policy: Path, qwen_prm: Path) -> None:
    class Wrong(Strategy, tag="mirror_wrong", frozen=True):
        async def run(self, search: Search) -> None:
            assert isinstance(search.root, SearchBranch)
            await search.root.extend()
            await BranchLease(search.root).logprobs("prm", 0)

    with pytest.raises(CapabilityError, match="scores steps in its own words"):
        _solve(policy, qwen_prm, Wrong(), Budget(tokens=100))
