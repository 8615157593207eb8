"""The recipes of papers: each is read, and runs to the end on tiny models."""

import json
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import BranchwiseError
from branchwise.evals.runs.recipe import Recipe, checked_recipe, read_recipe
from branchwise.evals.runs.store import Store
from branchwise.evals.suites.registry import suite_names
from support.evaluating import run
from support.tiny import save_model

FOLDER = Path(__file__).parents[2] / "evals" / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
each_recipe = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Random models by role: a policy, a draft model of the same vocabulary, a step scorer."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "model", "Qwen2", max_position_embeddings=2048)
    save_model(folder / "draft", "Qwen2", seed=1, num_hidden_layers=1, max_position_embeddings=2048)
    scorer = {"head": "TokenClassification", "num_labels": 2}
    save_model(folder / "prm", "Llama", seed=2, max_position_embeddings=2048, **scorer)
    return {role: str(folder / role) for role in ("model", "draft", "prm")}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two problems as a suite."""
    path = tmp_path_factory.mktemp("suite") / "two.jsonl"
    rows = [{"question": "What is 1 + 1?", "gold": "2"}, {"question": "What is 2 * 3?", "gold": "6"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"jsonl:{path}"


def small(recipe: Recipe, models: dict[str, str], problems: str) -> Recipe:
    """The recipe on tiny models: the first strategy of each sweep, few tokens, one seed."""
    roles = {role: models[role] for role in models if getattr(recipe, role) is not None}
    firsts = tuple(
        checked_recipe(msgspec.structs.replace(recipe, strategies=(text,))).strategies[0]
        for text in recipe.strategies
    )
    return checked_recipe(
        msgspec.structs.replace(
            recipe, **roles, suite=problems, strategies=firsts, budgets=("tokens=96",), seeds=1, max_tokens=48
        )
    )


def test_there_are_recipes_of_every_paper_that_is_named() -> None:
    assert {path.stem for path in RECIPES} >= {
        "rebase",
        "s1",
        "search_and_learn_beam",
        "search_and_learn_best_of_n",
        "search_and_learn_dvts",
        "spec_reason",
    }


@each_recipe
def test_a_recipe_says_its_paper_and_names_a_suite_and_strategies_that_are_there(path: Path) -> None:
    text = path.read_text()
    recipe = checked_recipe(read_recipe(str(path)))
    assert text.startswith("# ")
    assert recipe.suite in suite_names()
    assert recipe.strategies
    assert recipe.budgets
    assert recipe.model != "reference"


@pytest.mark.slow
@each_recipe
def test_a_recipe_runs_to_the_end_without_a_failed_sample(
    path: Path, models: dict[str, str], problems: str, tmp_path: Path
) -> None:
    recipe = small(read_recipe(str(path)), models, problems)
    assert run(recipe, tmp_path / "run") == 0
    with Store.read(tmp_path / "run") as store:
        records = list(store.records())
        graphs = [json.loads(store.graph(record.key) or b"") for record in records]
    assert len(records) == 2 * len(recipe.strategies)
    for record, graph in zip(records, graphs, strict=True):
        assert record.error is None
        assert 0 < (record.usage.tokens or 0) <= 96
        assert sum(node["tokens_spent"] for node in graph["nodes"]) == record.usage.tokens
        assert sum(node["flops_spent"] for node in graph["nodes"]) == record.usage.flops
    if path.stem == "spec_reason":
        judged = [record for record in records if "judge(mode=score)" in record.verifiers]
        assert any(record.strategy.startswith("spec_reason") for record in judged)


@pytest.mark.slow
def test_without_its_judge_spec_reason_is_refused_before_anything_runs(
    models: dict[str, str], problems: str, tmp_path: Path
) -> None:
    recipe = small(read_recipe(str(FOLDER / "spec_reason.toml")), models, problems)
    unjudged = msgspec.structs.replace(recipe, verifier=None, strategies=recipe.strategies[1:])
    with pytest.raises(BranchwiseError, match="strategy spec_reason needs a verifier"):
        run(unjudged, tmp_path / "run")
