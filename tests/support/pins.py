"""The public faults that this project keeps out, and where the tests name them.

A test says `@pytest.mark.pins("vllm#43569")` for each fault that it would have found.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

ENGINE_FAULTS: dict[str, tuple[str, ...]] = {
    "a hit only ever returns KV that was written": (
        "vllm#43569",
        "vllm#37152",
        "vllm#38715",
        "vllm#41400",
        "vllm#28374",
    ),
    "a wholly cached prompt still computes its last row": (
        "vllm#11186",
        "vllm#17999",
        "vllm#9972",
        "LMCache#3322",
    ),
    "tokens depend on seed and prompt only; children are distinct": (
        "vllm#17524",
        "vllm#51226",
        "vllm#1595",
        "vllm#2514",
        "sglang#28805",
        "sglang#11048",
        "sglang#15481",
        "sglang#15746",
        "UniRL#208",
        "verl#6857",
    ),
    "in the deterministic mode cache hits and chunk edges change no bit": (
        "vllm#33123",
        "vllm#27433",
        "pegainfer#688",
    ),
    "the prompt of n samples is computed once": ("vllm#39647", "vllm#13421", "vllm#9501"),
    "a fork writes to its own copy": ("xllm#1984", "TensorRT-LLM#17306"),
    "cancelling anywhere leaks nothing": (
        "vllm#57061",
        "vllm#7111",
        "sglang#2238",
        "sglang#24070",
        "sglang#36926",
        "sglang#38981",
        "vllm#24382",
    ),
    "ids are given once and compared whole": ("sglang#19035", "vllm#27987", "vllm#23697"),
    "scores of cached and chunked prompts are whole": (
        "vllm#29216",
        "vllm#41411",
        "vllm#14239",
        "vllm#5846",
        "vllm#42019",
        "strands-sglang#34",
    ),
    "scoring reuses the prefix and bounds its memory": (
        "vllm#3251",
        "vllm#3914",
        "vllm#8268",
        "vllm#13409",
        "vllm#5550",
    ),
    "what was generated is found by the next turn": (
        "sglang#16521",
        "inference-perf#649",
        "prime-rl#1863",
        "llama.cpp#16632",
        "mlc-llm#3179",
    ),
    "prefixes can be kept, and the tail of a chain goes first": (
        "vllm#23083",
        "sglang#18941",
        "sglang#21045",
        "llm-d#704",
    ),
    "characters over several tokens stream whole": (
        "vllm#17448",
        "vllm#19449",
        "vllm#48853",
        "tokenizers#1141",
        "dynamo#12630",
    ),
    "extreme sampling parameters equal greedy": ("vllm#3063", "vllm#1623", "vllm#2937", "exllamav2#50"),
    "padding never touches live KV": ("vllm#43810", "sglang#32477", "sglang#35351"),
    "after a rollback the KV equals a fresh prefill's": (
        "openvino.genai#4190",
        "mlxcel#994",
        "vllm#56734",
    ),
    "drafts change no text, for no seed": ("vllm#6038", "vllm#9441", "vllm#7627", "vllm#41758"),
    "the ratio test gets the distribution that was sampled from": ("transformers#47932", "vllm#53436"),
    "a draft model computes what only its target has cached": ("vllm#47930",),
    "drafts end where a context ends": ("vllm#57941", "Arctic#151"),
    "tokens behind drafts have their own log-probability": ("llama.cpp#27972",),
    "preemption beside drafts is harmless": ("vllm#16832",),
    "adapter, weights and namespace are in the key": (
        "vllm#30931",
        "vllm#42125",
        "vllm#17045",
        "vllm#16016",
        "vllm#53347",
        "vllm#54727",
        "llama.cpp#26207",
    ),
    "each running request is planned once per step": ("vllm tests/v1/core/test_priority_preemption_bug.py",),
    "a request just resumed is not preempted at once": ("vllm#25538",),
    "the victim is the cheapest to recompute": ("vllm#54644",),
    "what a preemption costs is counted apart": ("vllm#5051", "vllm#7346", "vllm#49984"),
}
"""What must hold, and the reports of engines where it did not. Faults of speculation are not among them."""

GRADER_FAULTS: dict[str, tuple[str, ...]] = {
    "a number is read whole and compared exactly": ("PostTrainBench#44",),
    "the last complete form is the answer": (
        "EleutherAI/lm-evaluation-harness#2552",
        "EleutherAI/lm-evaluation-harness#3116",
        "EleutherAI/lm-evaluation-harness#3438",
        "open-instruct#1764",
        "optillm majority_voting",
        "ThinkBooster answer tags",
        "deepconf unclosed box",
    ),
    "formulas that differ are not equal, in either order": (
        "Math-Verify#14",
        "Math-Verify#60",
        "Math-Verify#64",
        "Math-Verify#25",
        "sieval#18",
        "open-r1#557",
    ),
    "grading works from any thread and ends in time": (
        "Math-Verify#50",
        "Math-Verify#55",
        "Math-Verify#65",
        "trl#5281",
        "verl#3407",
    ),
    "equivalent answers vote together, abstentions and duplicates do not": (
        "lighteval#1054",
        "NVIDIA-NeMo/Skills#1257",
        "search-and-learn beam_search.py",
        "openreasoner/openr NaN score",
        "its_hub projection",
    ),
    "an expression uses the numbers as given, and is never run": ("reasoning-gym#478", "reasoning-gym#265"),
    "a program's time is CPU time": ("evalplus#5",),
    "options are shuffled": ("specreason spec_reason.py",),
}
"""What must hold, and the reports of graders and votes where it did not."""


def pinned_faults(folder: Path = TESTS) -> dict[str, list[str]]:
    """Every fault that a test names, and the files that do."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for fault in _marks(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(fault, []).append(str(path.relative_to(folder)))
    return found


def _marks(tree: ast.Module) -> list[str]:
    """Arguments of `pytest.mark.pins(...)`."""
    return [
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pins"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
