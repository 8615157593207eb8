"""Reader of the samples that lm-evaluation-harness logs (`samples_TASK_DATE.jsonl`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.errors import UsageError
from ...verifiers.answer import equivalent, extract_answer
from .recording import Completion, RecordedProblem, Recording

_METRICS = ("exact_match", "acc", "pass@1")
_UNFILTERED = "none"
"""The harness's name of the filter of a task that has none."""


def read_samples(entries: Sequence[Mapping[str, Any]], name: str, filter: str | None = None) -> Recording:
    """Logged samples as a recording: `repeats` responses per document, with the answers of one filter, which
    is to be named where the file has several.

    A single response is graded as its metric says. Of several, the harness scores but one: each is then
    compared with the target by its own answer. Tokens were not recorded. Raises `UsageError` for a task that
    generates no text, and for a filter that is not there or not named.
    """
    chosen = _chosen(filter, list(dict.fromkeys(map(_filter, entries))), name)
    problems: dict[str, RecordedProblem] = {}
    for entry in entries:
        identity = f"{name}:{entry['doc_id']}"
        if _filter(entry) == chosen and identity not in problems:
            problems[identity] = _problem(entry, identity, name)
    return Recording(name=name, problems=tuple(problems.values()))


def _filter(entry: Mapping[str, Any]) -> str:
    return str(entry.get("filter") or _UNFILTERED)


def _chosen(given: str | None, filters: Sequence[str], name: str) -> str:
    if given is None and len(filters) == 1:
        return filters[0]
    if given is None:
        raise UsageError(
            f"recording {name}: holds the answers of several filters; give one of them with --filter: "
            f"{', '.join(filters)}"
        )
    if given not in filters:
        raise UsageError(f"--filter {given}: not in the recording {name}, which has {', '.join(filters)}")
    return given


def _problem(entry: Mapping[str, Any], identity: str, name: str) -> RecordedProblem:
    texts = entry["resps"][0] if entry["resps"] else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(
            f"recording {name}: document {entry['doc_id']} has log-likelihoods, not generated text; "
            "give the samples of a task that generates"
        )
    target = str(entry.get("target", ""))
    filtered = _filtered(entry.get("filtered_resps"), len(texts))
    graded = _metric(entry) if len(texts) == 1 else None
    completions = []
    for text, own in zip(texts, filtered, strict=True):
        answer = own if own is not None else extract_answer(text)
        right = graded if graded is not None else _is_right(answer, target)
        completions.append(Completion(text=text, answer=answer, correct=right))
    return RecordedProblem(id=identity, problem=_question(entry), gold=target, completions=tuple(completions))


def _filtered(values: Any, count: int) -> list[str | None]:
    """The filter's answers where it kept one per response; "[invalid]" is how it writes none."""
    if isinstance(values, list) and len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not isinstance(values, list) or len(values) != count:
        return [None] * count
    return [str(value) if isinstance(value, str) and value != "[invalid]" else None for value in values]


def _metric(entry: Mapping[str, Any]) -> bool | None:
    named = entry.get("metrics")
    for metric in named if isinstance(named, list) else _METRICS:
        if isinstance(value := entry.get(metric), int | float):
            return value == 1
    return None


def _is_right(answer: str | None, target: str) -> bool:
    gold = extract_answer(target) if "####" in target else target
    return answer is not None and gold is not None and equivalent(answer, gold)


def _question(entry: Mapping[str, Any]) -> str:
    doc = entry.get("doc")
    fields = doc if isinstance(doc, dict) else {}
    for name in ("question", "problem", "query", "prompt"):
        if isinstance(text := fields.get(name), str):
            return text
    return str(doc)
