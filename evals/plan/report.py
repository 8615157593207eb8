"""A plan in words and as JSON."""

from typing import Any

import msgspec

from .plan import Plan, Workload


def as_document(plan: Plan, workload: Workload) -> str:
    """One JSON object: the plan, what follows from it, and the workload."""
    document: dict[str, Any] = msgspec.to_builtins(plan)
    document |= {
        "parts": plan.parts._asdict(),
        "tokens_per_s": plan.tokens_per_s,
        "solved_p50_s": plan.solved_quantile(0.5),
        "solved_p95_s": plan.solved_quantile(0.95),
        "workload": msgspec.to_builtins(workload),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def as_text(plan: Plan, workload: Workload) -> str:
    """A table of a few lines."""
    parts = ", ".join(
        f"{name} {seconds / plan.seconds:.0%}" for name, seconds in plan.parts._asdict().items() if seconds
    )  # no part has seconds where nothing ran
    memory = plan.memory
    problems = f"{workload.problems} problems" if workload.problems > 1 else "1 problem"
    rows = [
        ("machine", plan.machine),
        ("work", f"{problems}, {workload.strategy}, prompts of {workload.prompt_tokens} tokens"),
        ("time", f"{_seconds(plan.seconds)} in {plan.steps} steps{': ' if parts else ''}{parts}"),
        ("solved", f"half after {_seconds(plan.solved_quantile(0.5))}, 95 % after {_quantile(plan)}"),
        ("tokens", f"{plan.drawn} generated, {plan.tokens_per_s:.0f} per second; {plan.tokens} charged"),
        ("rows", f"{plan.rows} computed; {plan.flops / 1e12:.4g} TFLOP of logical work"),
        ("KV peak", f"{plan.kv_positions} positions, {_bytes(plan.kv_bytes)}; "
                    f"{plan.kv_unshared_positions} positions if no branches shared any"),
        ("memory", f"weights {_bytes(memory.weights_bytes)}, steps {_bytes(memory.step_bytes)}, "
                   f"room for KV {_bytes(memory.kv_bytes)}"),
        ("preempted", f"{plan.preemptions} times"),
        ("ended", ", ".join(f"{reason} {count}" for reason, count in plan.reasons.items())),
    ]  # fmt: skip
    return "\n".join(f"{name:<10}{value}" for name, value in rows)


def _quantile(plan: Plan) -> str:
    return _seconds(plan.solved_quantile(0.95))


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _bytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
