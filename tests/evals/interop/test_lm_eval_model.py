"""Strategies as a model of lm-eval, on tasks of its own making from local files."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from branchwise import Budget, solve
from branchwise.engine.errors import CapacityError, UsageError
from branchwise.reasoning.prompting import recognise
from branchwise.reasoning.source import find_source

pytest.importorskip("lm_eval", reason="needs branchwise[lm-eval]")

from branchwise.evals.interop.lm_eval_model import SearchLM
from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]
from lm_eval.evaluator import simple_evaluate  # pyright: ignore[reportMissingImports]
from lm_eval.tasks import TaskManager  # pyright: ignore[reportMissingImports]

ROWS = [
    {"question": f"{12 + i} + 7*3 - 5", "answer": str(28 + i), "trace": f"<bos>A7+{21 + i}:", "label": i}
    for i in range(3)
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}, cache_dir: {cache}}}
test_split: test
target_delimiter: ""
"""
KINDS = {
    "sums": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"]}
metric_list: [{metric: exact_match}]
""",
    "choice": """
output_type: multiple_choice
doc_to_text: "{{trace}}"
doc_to_choice: ["7+21=28>28;", "7+22=29>29;", "7+23=30>30;"]
doc_to_target: "{{label}}"
metric_list: [{metric: acc}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{trace}}"
metric_list: [{metric: byte_perplexity}]
""",
}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder with one task of each kind, and their data."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for name, kind in KINDS.items():
        head = TASK.format(name=f"tiny_{name}", data=tmp_path / "rows.jsonl", cache=tmp_path / "cache")
        (folder / f"{name}.yaml").write_text(head + kind)
    return folder


@pytest.fixture(scope="module")
def lm() -> SearchLM:
    return SearchLM(strategy="best_of_n(n=4)", budget="tokens=300", batch_size=2)


def logits(tokens: Sequence[int]) -> torch.Tensor:
    """Log-probabilities [tokens, vocabulary] by transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(find_source("reference").policy, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([list(tokens)])).logits[0].log_softmax(-1)


def spent_tokens(lm: SearchLM) -> int:
    return lm.get_model_info()["branchwise"]["usage"]["tokens"]


def request(kind: str, *arguments: Any) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)  # pyright: ignore[reportArgumentType]


def test_lm_eval_runs_a_strategy_on_tasks_of_all_kinds(tasks: Path) -> None:
    evaluate: Any = simple_evaluate
    results = evaluate(
        model="branchwise",
        model_args={"strategy": "best_of_n(n=4)", "budget": "tokens=150", "seed": 2},
        tasks=["tiny_sums", "tiny_choice", "tiny_rolling"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        batch_size=2,
        bootstrap_iters=0,
    )
    own = [
        solve(row["question"], strategy="best_of_n(n=4)", budget=Budget(tokens=150), seed=2) for row in ROWS
    ]
    answers = [sample["resps"][0][0] for sample in results["samples"]["tiny_sums"]]
    assert answers == [solution.answer or "" for solution in own]
    right = sum(solution.answer == row["answer"] for solution, row in zip(own, ROWS, strict=True))
    assert results["results"]["tiny_sums"]["exact_match,none"] == pytest.approx(right / 3)
    assert results["results"]["tiny_choice"]["acc,none"] == 1.0
    assert math.isfinite(results["results"]["tiny_rolling"]["byte_perplexity,none"])
    kept = results["config"]["branchwise"]
    assert (kept["strategy"], kept["budget"], kept["seed"]) == ("best_of_n(n=4)", "tokens=150", 2)
    assert kept["usage"]["tokens"] == sum(solution.usage.tokens for solution in own) <= 3 * 150
    assert kept["usage"]["problems"] == 3


@pytest.mark.slow
def test_the_command_line_of_lm_eval_knows_the_model(tasks: Path, tmp_path: Path) -> None:
    arguments = ["run", "--model", "branchwise", "--tasks", "tiny_sums", "--include_path", str(tasks)]
    arguments += ["--model_args", json.dumps({"strategy": "greedy", "budget": "tokens=200"})]
    arguments += ["--output_path", str(tmp_path / "results")]
    subprocess.run(
        [sys.executable, "-m", "branchwise.evals.interop.lm_eval_model", *arguments],
        check=True,
        capture_output=True,
        env={**os.environ, "HF_DATASETS_OFFLINE": "1"},
    )
    (path,) = (tmp_path / "results").rglob("results_*.json")
    told = json.loads(path.read_text())
    assert told["config"]["branchwise"]["strategy"] == "greedy"
    assert told["results"]["tiny_sums"]["exact_match,none"] >= 0


def test_the_models_of_lm_eval_can_still_be_named() -> None:
    """In a process of its own: whatever else was imported here may have named them."""
    named = "import branchwise.evals.interop.lm_eval_model; from lm_eval.api.registry import get_model"
    subprocess.run([sys.executable, "-c", f"{named}; get_model('dummy')"], check=True)


def test_loglikelihoods_are_those_of_transformers(lm: SearchLM) -> None:
    pairs = [
        ("<bos>A7+21:7+21=", "28"),
        ("<bos>A7+21:7+21=", "29"),
        ("7*3", "=21>7+21;"),
        ("", "7+21"),
        ("7", ""),
    ]
    found = lm.loglikelihood([request("loglikelihood", *pair) for pair in pairs], disable_tqdm=True)
    for (context, continuation), (logprob, is_greedy) in zip(pairs, found, strict=True):
        before = lm.tok_encode(context) or [lm.prefix_token_id]
        after = lm.tok_encode(continuation)
        rows = logits([*before, *after])[len(before) - 1 : -1]
        expected = sum(float(row[token]) for row, token in zip(rows, after, strict=True))
        assert logprob == pytest.approx(expected, abs=1e-3)
        assert is_greedy == (rows.argmax(-1).tolist() == after)
    assert [greedy for _, greedy in found[:2]] == [True, False]


def test_a_greedy_continuation_of_unsure_tokens_is_found_by_decoding(lm: SearchLM) -> None:
    """The most likely token of a flat distribution has less than half of the probability."""
    task = recognise("Use 3, 7, 12 and 18 to make 45")
    assert task is not None
    context = f"<bos>{task.prompt()}"
    rows = logits(lm.tok_encode(context))
    unsure = [p for p in range(len(rows)) if float(rows[p].max()) < math.log(0.5)]
    assert unsure
    position = unsure[0]
    best = int(rows[position].argmax())
    before = lm.tok_encode(context)[: position + 1]
    second = int(rows[position].topk(2).indices[1])
    found = lm._loglikelihood_tokens(
        [(("", ""), before, [best]), (("", ""), before, [second])], disable_tqdm=True
    )
    assert [greedy for _, greedy in found] == [True, False]


@pytest.mark.parametrize("repeats", [1, 300])
def test_a_whole_text_is_scored_in_windows_of_the_context(lm: SearchLM, repeats: int) -> None:
    from lm_eval.utils import get_rolling_token_windows  # pyright: ignore[reportMissingImports]

    text = "7+21=28>28;" * repeats
    (found,) = lm.loglikelihood_rolling([request("loglikelihood_rolling", text)], disable_tqdm=True)
    longest = lm.policy.max_model_len - 1
    expected = 0.0
    for given, told in get_rolling_token_windows(lm.tok_encode(text), lm.prefix_token_id, longest, 1):
        rows = logits(given)[-len(told) :]
        expected += sum(float(row[token]) for row, token in zip(rows, told, strict=True))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_a_context_that_is_too_long_loses_its_beginning(lm: SearchLM) -> None:
    long = "7+21=28>28;" * 100
    (cut,) = lm.loglikelihood([request("loglikelihood", long, "7")], disable_tqdm=True)
    kept = lm.tok_encode(long)[-(lm.policy.max_model_len - 1) :]
    (same,) = lm._loglikelihood_tokens([(("", ""), kept, lm.tok_encode("7"))], disable_tqdm=True)
    assert cut == same
    with pytest.raises(CapacityError, match="continuation of 1100 tokens"):
        lm.loglikelihood([request("loglikelihood", "7", long)], disable_tqdm=True)


def test_repeats_of_a_request_have_seeds_of_their_own(lm: SearchLM) -> None:
    asked = request("generate_until", "12 + 7*3 - 5", {"until": []})
    before = spent_tokens(lm)
    texts = lm.generate_until([asked, asked], disable_tqdm=True)
    own = [
        solve("12 + 7*3 - 5", strategy="best_of_n(n=4)", budget=Budget(tokens=300), seed=seed)
        for seed in (0, 1)
    ]
    assert texts == [solution.answer for solution in own]
    assert spent_tokens(lm) - before == sum(solution.usage.tokens for solution in own)
    assert own[0].usage.tokens != own[1].usage.tokens


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"until": ["8"]}, "2"), ({"until": "2"}, ""), ({"until": ["x"]}, "28"), ({}, "28")],
)
def test_a_stop_string_cuts_the_conclusion(lm: SearchLM, arguments: dict[str, Any], text: str) -> None:
    asked = request("generate_until", "12 + 7*3 - 5", arguments)
    assert lm.generate_until([asked], disable_tqdm=True) == [text]


def test_a_task_bounds_the_tokens_of_a_candidate(lm: SearchLM) -> None:
    asked = request("generate_until", "12 + 7*3 - 5", {"until": [], "max_gen_toks": 4})
    own = solve("12 + 7*3 - 5", strategy="best_of_n(n=4)", budget=Budget(tokens=300), seed=0, max_tokens=4)
    before = spent_tokens(lm)
    assert lm.generate_until([asked], disable_tqdm=True) == [own.answer or ""]
    assert spent_tokens(lm) - before == own.usage.tokens


def test_what_the_model_cannot_read_ends_the_evaluation_in_one_line(lm: SearchLM) -> None:
    asked = [request("generate_until", text, {"until": []}) for text in ("12 + 7*3 - 5", "Hello?")]
    with pytest.raises(UsageError, match="'Hello\\?'"):
        lm.generate_until(asked, disable_tqdm=True)


def test_an_argument_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="argument 'pretrained': not known"):
        SearchLM(pretrained="gpt2")


@pytest.mark.parametrize(
    ("batch_size", "parallel"), [(3, 3), ("4", 4), ("auto", 8), ("auto:2", 2), (None, 8)]
)
def test_the_batch_size_is_how_many_problems_are_side_by_side(
    batch_size: int | str | None, parallel: int
) -> None:
    assert SearchLM(batch_size=batch_size).parallel == parallel
