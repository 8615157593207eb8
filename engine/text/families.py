"""How the known families of models mark their thinking.

Sources: the models' chat templates, and the markers that servers split their output by
(vllm-project/vllm `vllm/reasoning`, SGLang's table of reasoning parsers); harmony: the format's guide
(openai/openai-cookbook `articles/openai-harmony.md`); s1: `generate_with_budget_forcing` of its evaluation.
"""

from collections.abc import Callable

import msgspec


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """The thinking markers of a family, as text.

    `shown`: a chat template that speaks of them belongs to a model that thinks unless told not to, so the
    markers alone tell the family. Others think only on request, or their template says nothing of it: their
    folder names them in `branchwise.json`. `inside`: tokens that end turns elsewhere, and stand inside of an
    answer here.
    """

    name: str
    models: str
    think_start: str
    think_end: str
    shown: bool = True
    inside: frozenset[str] = frozenset()


FAMILIES = (
    Family(
        name="think",
        models="Qwen3, QwQ, DeepSeek-R1 and its distillations, GLM 4.5, Olmo 3, SmolLM3, MiniMax M2; "
        "EXAONE 4, Nemotron and Granite 3.3 where the prompt asks for thinking",
        think_start="<think>",
        think_end="</think>",
    ),
    Family(name="magistral", models="Magistral", think_start="[THINK]", think_end="[/THINK]"),
    Family(name="seed-oss", models="Seed-OSS", think_start="<seed:think>", think_end="</seed:think>"),
    Family(name="exaone-deep", models="EXAONE Deep", think_start="<thought>", think_end="</thought>"),
    Family(name="kimi", models="Kimi-VL-Thinking", think_start="◁think▷", think_end="◁/think▷"),
    Family(
        name="harmony",
        models="gpt-oss: the analysis channel, and the final one behind it",
        think_start="<|channel|>analysis<|message|>",
        think_end="<|end|><|start|>assistant<|channel|>final<|message|>",
        inside=frozenset({"<|end|>"}),
    ),
    Family(
        name="gemma-4",
        models="Gemma 4 with --think",
        think_start="<|channel>thought\n",
        think_end="<channel|>",
        shown=False,
    ),
    Family(
        name="granite-3.2",
        models="Granite 3.2 with thinking in its prompt: phrases, no tokens",
        think_start="Here is my thought process:",
        think_end="Here is my response:",
        shown=False,
    ),
    Family(
        name="s1",
        models="s1 and s1.1, whose template is Qwen2.5's",
        think_start="<|im_start|>think\n",
        think_end="<|im_start|>answer\n",
        shown=False,
    ),
)

_HARMONY_CHANNEL = "<|channel|>"


def named_family(name: str) -> Family | None:
    """The family of that name."""
    return next((family for family in FAMILIES if family.name == name), None)


def shown_family(template: str, token_id: Callable[[str], int | None]) -> Family | None:
    """The family that a chat template speaks of and whose marker is a token; None for models that do not
    think, or only on request."""
    for family in FAMILIES:
        spoken = family.think_end in template or family.think_start in template
        if family.name == "harmony":
            spoken = "<|channel|>analysis" in template
        marker = _HARMONY_CHANNEL if family.name == "harmony" else family.think_end
        if family.shown and spoken and token_id(marker) is not None:
            return family
    return None
