"""The real `local-chat-completions` model of lm-eval on a task of reference sentences."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from branchwise import Budget
from branchwise.reasoning.solution import Solution
from support.sentences import held_out_sums, solved

pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("lm_eval", reason="needs branchwise[lm-eval]")
pytest.importorskip("aiohttp", reason="needs lm-eval[api]")
pytest.importorskip("tenacity", reason="needs lm-eval[api]")

from lm_eval.evaluator import simple_evaluate  # pyright: ignore[reportMissingImports]
from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from support.serving import ServerThread

COUNTDOWN = {"Use 3, 7 and 12 to make 43": "12*3+7"}
ROWS = held_out_sums(7, seed=5) | COUNTDOWN
SEED = 1234
"""What lm-eval sends unless told otherwise."""

TASK = """
task: sentences
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {cache}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {generation}
metric_list: [{{metric: exact_match}}]
"""


def evaluated(
    folder: Path, server: "ServerThread", generation: dict[str, Any], **arguments: Any
) -> dict[str, Any]:
    """What lm-eval makes of the task, its samples included."""
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in ROWS.items()))
    text = TASK.format(data=data, cache=folder / "cache", generation=json.dumps(generation))
    (folder / "sentences.yaml").write_text(text)
    found = simple_evaluate(
        model="local-chat-completions",
        model_args={"base_url": f"{server.url}/v1/chat/completions", **arguments},
        tasks=["sentences"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    assert found is not None
    return found


def check(found: dict[str, Any], own: list[Solution]) -> None:
    """Each sample has the answer of its own search, and the score is theirs."""
    texts = {sample["doc"]["question"]: sample["resps"][0][0] for sample in found["samples"]["sentences"]}
    assert texts == {text: solution.conclusion for text, solution in zip(ROWS, own, strict=True)}
    right = sum(solution.conclusion == answer for solution, answer in zip(own, ROWS.values(), strict=True))
    assert 0 < right < len(ROWS)
    assert found["results"]["sentences"]["exact_match,none"] == pytest.approx(right / len(ROWS))


def test_a_task_has_the_answers_and_the_score_of_greedy_searches(
    tmp_path: Path, server: "ServerThread"
) -> None:
    found = evaluated(tmp_path, server, {"until": ["\n", "Q:"]}, model="reference:greedy")
    check(found, solved(list(ROWS), "greedy", Budget(tokens=1000), seed=SEED, max_tokens=256))


def test_a_task_chooses_strategy_budget_and_temperature(tmp_path: Path, server: "ServerThread") -> None:
    generation = {
        "until": ["\n"],
        "do_sample": True,
        "temperature": 0.9,
        "strategy": "best_of_n(n=3)",
        "budget": "tokens=200",
    }
    found = evaluated(tmp_path, server, generation, model="reference", num_concurrent=4)
    own = solved(list(ROWS), "best_of_n(n=3)", Budget(tokens=200), seed=SEED, temperature=0.9, max_tokens=256)
    check(found, own)
