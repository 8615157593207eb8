"""Whether strategy, verifier and engine fit together: asked before anything runs."""

from ..engine.errors import CapabilityError, UsageError
from ..engine.protocol import Backend
from ..strategies.base import Strategy
from ..verifiers.base import Verifier
from ..verifiers.problem import Problem
from ..verifiers.registry import find_verifier
from .mirror import find_reading


def choose_verifier(name: str | None, problem: Problem, backend: Backend) -> Verifier | None:
    """The named verifier, else the task's own, else the loaded reward model, else none."""
    if name is not None:
        return find_verifier(name, problem)
    own = problem.task.verifier() if problem.task is not None else None
    if own is not None:
        return own
    return find_verifier("prm", problem) if "prm" in backend.models else None


def check_pairing(strategy: Strategy, verifier: Verifier | None, backend: Backend, *, oracle: bool) -> None:
    """Raises `CapabilityError` or `UsageError`, in one line that names the option to give."""
    needs, name = strategy.needs, type(strategy).__struct_config__.tag
    if (needs.step_scores or needs.scores) and verifier is None:
        raise CapabilityError(
            f"strategy {name} needs a verifier: give --verifier, or a reward model with --prm"
        )
    if needs.step_scores and verifier is not None and not verifier.step_scores:
        raise CapabilityError(
            f"strategy {name} needs scores of single steps, which verifier {verifier.name!r} does not give: "
            "give --prm and --verifier prm"
        )
    for model in needs.models:
        if model not in backend.models:
            raise CapabilityError(f"strategy {name} needs the model {model!r}: give --{model}")
    if verifier is None:
        return
    if verifier.oracle and not oracle:
        raise UsageError(
            f"verifier {verifier.name!r} recomputes the answer, which no selection may use: "
            "give --oracle to allow it (it is marked in the output), or another verifier"
        )
    for model in verifier.models:
        if model not in backend.models:
            raise CapabilityError(f"verifier {verifier.name!r} needs the model {model!r}: give --{model}")
        if backend.models[model].head == "reward" and not backend.capabilities.score_reward:
            raise CapabilityError(
                f"verifier {verifier.name!r} needs reward scores, which this engine does not give"
            )
        find_reading(backend.models["policy"], backend.models[model])
