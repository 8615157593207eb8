"""The table of docs/production.md: what the bounds say of Llama 3 8B in bf16 on each GPU."""

from ...engine.opening import GPU_RESERVE_BYTES
from ...kernels.bounds import LLAMA_8B, Bound, best_of, decode_step
from .gpus import gpus
from .machine import Machine

SAMPLES, PROMPT, ANSWER, ITEMS = 64, 2048, 512, 5
"""The search: samples of one prompt, half of the answer's tokens written when the step is looked at."""


def position_bytes() -> int:
    """KV of one position over all layers."""
    return LLAMA_8B.layers * LLAMA_8B.kv_bytes


def weight_bytes() -> int:
    """All weights: those that a step reads, and the embedding."""
    return LLAMA_8B.weight_bytes + LLAMA_8B.vocabulary * LLAMA_8B.hidden * LLAMA_8B.element_bytes


def search_positions() -> int:
    """KV positions of the search at its end: the prompt once, each answer for itself."""
    return PROMPT + SAMPLES * ANSWER


def room_positions(machine: Machine) -> int:
    """KV positions in what weights and the reserve leave."""
    left = machine.memory_bytes - weight_bytes() - GPU_RESERVE_BYTES
    return int(max(0, left) // position_bytes())


def prompt_seconds(machine: Machine) -> float:
    """Reading the prompt: two operations for each parameter of the layers and position, or the weights once;
    attention is little beside them."""
    head = LLAMA_8B.vocabulary * LLAMA_8B.hidden
    parameters = LLAMA_8B.weight_bytes / LLAMA_8B.element_bytes - head
    return Bound(LLAMA_8B.weight_bytes, 2 * parameters * PROMPT).seconds(machine.roofline)


def step_seconds(machine: Machine) -> float:
    """A decode step of the search halfway through its answers."""
    return decode_step(LLAMA_8B, best_of(SAMPLES, PROMPT, ANSWER // 2, ITEMS), machine.roofline)


def sizing_table() -> str:
    """Markdown: one row for each GPU."""
    lines = [
        "| GPU | room for KV, positions | such searches at once | prompt, ms | step, ms | tokens/s of one |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for machine in gpus():
        step, room = step_seconds(machine), room_positions(machine)
        cells = (
            machine.name,
            f"{room // 1000}k",
            str(room // search_positions()),
            f"{prompt_seconds(machine) * 1e3:.0f}",
            f"{step * 1e3:.2f}",
            f"{SAMPLES / step:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
