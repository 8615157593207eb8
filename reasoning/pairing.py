"""Whether strategy, verifier and engine fit together: asked before anything runs."""

from ..engine.errors import CapabilityError, UsageError
from ..engine.protocol import Backend
from ..strategies.base import Strategy
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from ..verifiers.registry import find_verifier
from ..verifiers.vote import Select
from .budget import Budget
from .mirror import find_reading
from .source import ModelSource


def choose_verifier(name: str | None, problem: Problem, backend: Backend) -> Verifier | None:
    """The named verifier, else the task's own, else the loaded reward model, else none."""
    if name is not None:
        return find_verifier(name, problem)
    own = problem.task.verifier() if problem.task is not None else None
    if own is not None:
        return own
    return find_verifier("prm", problem) if "prm" in backend.models else None


def choose_step_verifier(verifier: Verifier | None, problem: Problem, backend: Backend) -> Verifier | None:
    """What scores partial work: the chosen verifier where it can, else the loaded reward model, else none."""
    if verifier is not None and verifier.step_scores:
        return verifier
    return find_verifier("prm", problem) if "prm" in backend.models else None


def check_budget(budget: Budget, backend: Backend) -> None:
    """Raises `UsageError` for what is no budget, `CapabilityError` for a limit that the engine cannot
    keep."""
    if not isinstance(budget, Budget):
        raise UsageError(f"budget {budget!r}: give a Budget, such as Budget(tokens=4096)")
    if budget.flops is not None and not backend.capabilities.flops:
        raise CapabilityError(
            f"budget flops={budget.flops}: the work of a model is not known here, since its folder does not "
            "tell its shape; give tokens or seconds instead"
        )


def check_pairing(
    strategy: Strategy,
    verifier: Verifier | None,
    step_verifier: Verifier | None,
    backend: Backend,
    *,
    oracle: bool,
) -> None:
    """Raises `CapabilityError` or `UsageError`, in one line that names the option to give."""
    needs, name = strategy.requirements(), type(strategy).__struct_config__.tag
    if (needs.step_scores or needs.scores) and verifier is None and step_verifier is None:
        raise CapabilityError(
            f"strategy {name} needs a verifier: give --verifier, or a reward model with --prm"
        )
    if needs.step_scores and step_verifier is None and verifier is not None:
        raise CapabilityError(
            f"strategy {name} needs scores of single steps, which verifier {verifier.name!r} does not give: "
            "give a reward model with --prm"
        )
    for model in needs.models:
        if model not in backend.models:
            raise CapabilityError(f"strategy {name} needs the model {model!r}: give --{model}")
    for capability in needs.capabilities:
        if not getattr(backend.capabilities, capability):
            raise CapabilityError(
                f"strategy {name} needs {CAPABILITIES[capability]}, which this engine does not give"
            )
    if strategy.selection() is Select.KNOCKOUT and not hasattr(verifier, "prefer"):
        raise CapabilityError(
            f"strategy {name}: select=knockout needs a verifier that compares two candidates: "
            'give --verifier "judge(mode=pairwise)"'
        )
    if needs.step_scores and step_verifier is not None and step_verifier is not verifier:
        check_verifier(step_verifier, backend, oracle=oracle)
    if verifier is not None:
        check_verifier(verifier, backend, oracle=oracle)


def check_reads(verifier: Verifier | None, source: ModelSource, backend: Backend) -> None:
    """Raises `CapabilityError` where a verifier speaks to a policy that reads nothing but its own tasks, or
    to its draft, which has the same vocabulary."""
    if verifier is None or not source.tasks_only:
        return
    if any(model in ("policy", "draft") or model not in backend.models for model in asks(verifier)):
        raise CapabilityError(
            f"verifier {verifier.name!r} asks the model {source.name!r}, which reads only its own tasks: "
            "give a model that reads text with --judge"
        )


def asks(verifier: Verifier) -> tuple[str, ...]:
    """The models that a verifier speaks to."""
    return getattr(verifier, "asks", ())


CAPABILITIES = {
    "score_logprob": "log-probabilities of given tokens",
    "score_reward": "reward scores",
    "token_stats": "statistics of each token's distribution",
    "exact_meter": "a budget kept to the token",
    "kv_account": "an account of its KV",
    "seeds": "seeded sampling",
    "speculates": "token-level speculation",
    "constrains": "answers of a given form",
}
"""`Capabilities` in words."""


def check_verifier(verifier: Verifier, backend: Backend, *, oracle: bool) -> None:
    """Raises `CapabilityError` or `UsageError` where the verifier may not be used, or cannot work here."""
    if verifier.oracle and not oracle:
        raise UsageError(
            f"verifier {verifier.name!r} recomputes the answer, which no selection may use: "
            "give --oracle to allow it (it is marked in the output), or another verifier"
        )
    wanted = {"token_stats": getattr(verifier, "stats_top_k", 0) > 0, "score_logprob": bool(asks(verifier))}
    for capability, needed in wanted.items():
        if needed and not getattr(backend.capabilities, capability):
            what = CAPABILITIES[capability]
            raise CapabilityError(f"verifier {verifier.name!r} needs {what}, which this engine does not give")
    for model in verifier.models:
        if model not in backend.models:
            raise CapabilityError(f"verifier {verifier.name!r} needs the model {model!r}: give --{model}")
        if backend.models[model].head == "reward" and not backend.capabilities.score_reward:
            raise CapabilityError(
                f"verifier {verifier.name!r} needs reward scores, which this engine does not give"
            )
        find_reading(backend.models["policy"], backend.models[model])
