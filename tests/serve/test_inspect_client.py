"""The real OpenAI providers of inspect_ai on tasks of reference sentences."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from branchwise import Budget
from branchwise.evals.reference.tasks import toolcall
from branchwise.evals.reference.tasks.trace import Split
from branchwise.reasoning.tools.calculator import evaluate
from support.sentences import held_out_sums, solved

pytest.importorskip("openai", reason="needs the openai client")
pytest.importorskip("litestar", reason="needs branchwise[serve]")
pytest.importorskip("inspect_ai", reason="needs branchwise[inspect]")

import inspect_ai  # pyright: ignore[reportMissingImports]
from inspect_ai import Task  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import MemoryDataset, Sample  # pyright: ignore[reportMissingImports]
from inspect_ai.log import EvalLog, read_eval_log  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ContentReasoning  # pyright: ignore[reportMissingImports]
from inspect_ai.scorer import Score, accuracy, scorer  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import generate, system_message, use_tools  # pyright: ignore[reportMissingImports]
from inspect_ai.tool import tool  # pyright: ignore[reportMissingImports]

if TYPE_CHECKING:
    from support.serving import ServerThread

SUMS = held_out_sums(7, seed=5) | {"Use 3, 7 and 12 to make 43": "12*3+7"}
COMPATIBLE = "openai-api/branchwise/reference"
OPENAI = "openai/reference"
"""It takes a name that it does not know for OpenAI's newest model, which has no temperature, whose
`max_tokens` are those of all its thinking, and which it asks by another endpoint unless told otherwise."""
ARGUMENTS: dict[str, dict[str, Any]] = {COMPATIBLE: {}, OPENAI: {"responses_api": False}}


@scorer(metrics=[accuracy()])
def same():
    async def score(state: Any, target: Any) -> Score:
        return Score(value="C" if state.output.completion == target.text else "I")

    return score


@tool
def calculator():
    async def execute(expression: str) -> str:
        """Compute an expression of numbers.

        Args:
            expression: Numbers with + - * / and brackets.
        """
        return evaluate(expression)

    return execute


def evaluated(
    server: "ServerThread",
    folder: Path,
    problems: dict[str, str],
    provider: str,
    strategy: str,
    *solvers: Any,
    **config: Any,
) -> EvalLog:
    """The log of a task, as read back from its file."""
    samples = [Sample(id=text, input=text, target=target) for text, target in problems.items()]
    task = Task(dataset=MemoryDataset(samples), solver=[*solvers, generate()], scorer=same())
    (log,) = inspect_ai.eval(
        task,
        model=f"{provider}:{strategy}",
        model_base_url=f"{server.url}/v1",
        model_args={"api_key": "any", **ARGUMENTS[provider]},
        log_dir=str(folder),
        display="none",
        **config,
    )
    assert (log.status, log.error) == ("success", None)
    return read_eval_log(log.location)


def accuracy_of(log: EvalLog) -> float:
    assert log.results is not None
    return log.results.scores[0].metrics["accuracy"].value


@pytest.mark.parametrize(
    ("provider", "budget", "options"),
    [
        (COMPATIBLE, Budget(tokens=200), {"temperature": 0.9, "max_tokens": 150}),
        (OPENAI, Budget(tokens=150), {}),
    ],
)
def test_a_task_has_the_answers_the_score_and_the_usage_of_its_searches(
    server: "ServerThread", tmp_path: Path, provider: str, budget: Budget, options: dict[str, Any]
) -> None:
    body = {"budget": {"tokens": 200}}
    asked = {"seed": 4, "max_tokens": 150, "temperature": 0.9, "stop_seqs": ["\n"], "extra_body": body}
    log = evaluated(server, tmp_path, SUMS, provider, "best_of_n(n=3)", system_message("Be brief."), **asked)
    found = solved(list(SUMS), "best_of_n(n=3)", budget, seed=4, **options)
    own = dict(zip(SUMS, found, strict=True))
    assert {sample.id for sample in log.samples or []} == set(SUMS)
    right = 0
    for sample in log.samples or []:
        solution, usage = own[str(sample.id)], sample.output.usage
        assert sample.output.completion == solution.conclusion
        assert usage is not None
        assert usage.output_tokens == solution.usage.tokens
        assert usage.input_tokens + (usage.input_tokens_cache_read or 0) == solution.usage.prompt_tokens
        told = len(solution.written.tokens) - solution.written.conclusion_start
        assert usage.reasoning_tokens == solution.usage.tokens - told
        right += solution.conclusion == sample.target
    assert 0 < right < len(SUMS)
    assert accuracy_of(log) == pytest.approx(right / len(SUMS))
    counted = log.stats.model_usage[f"{provider}:best_of_n(n=3)"]
    assert counted.output_tokens == sum(solution.usage.tokens for solution in found)


def test_thinking_is_reasoning_to_inspect(server: "ServerThread", tmp_path: Path) -> None:
    text = "12 + 7*3 - 5"
    log = evaluated(server, tmp_path, {text: "28"}, COMPATIBLE, "greedy", seed=0)
    (own,) = solved([text], "greedy", Budget(tokens=1000), seed=0)
    (sample,) = log.samples or []
    thinking, told = sample.output.message.content
    assert isinstance(thinking, ContentReasoning)
    assert (thinking.reasoning, told.text) == (own.thinking, own.answer)


@pytest.mark.parametrize("provider", [COMPATIBLE, OPENAI])
def test_tools_of_a_task_are_called(server: "ServerThread", tmp_path: Path, provider: str) -> None:
    rng = random.Random(11)
    instances = [toolcall.generate(rng, Split.HELD_OUT) for _ in range(4)]
    problems = {toolcall.sentence(each): str(toolcall.call_result(each.expression)) for each in instances}
    log = evaluated(server, tmp_path, problems, provider, "best_of_n(n=3)", use_tools(calculator()), seed=1)
    for sample in log.samples or []:
        assert [message.role for message in sample.messages] == ["user", "assistant", "tool", "assistant"]
        assert sample.messages[2].text == sample.target
    assert accuracy_of(log) == 1
