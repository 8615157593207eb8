"""What is particular to a model's text: where thinking ends, what marks a step, which ids stop it."""

import msgspec


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Markers of one model, as text and as ids of its tokenizer.

    `step_mark` is a literal string that ends a step (None: a blank line outside code fences and display maths).
    `think_start`, `think_end` are None for models without a thinking phase. `stop_ids` is the union of the generation
    config's, the tokenizer's and the chat template's end ids. `wait` is the text that asks for more thinking.
    `final_answer` names the closed form that ends an answer: "eos" (only the end of the sequence), or "boxed".
    """

    step_mark: str | None = None
    think_start: str | None = None
    think_end: str | None = None
    wait: str = "Wait"
    final_answer: str = "boxed"
    stop_ids: frozenset[int] = frozenset()

    @property
    def thinks(self) -> bool:
        """Whether an answer phase follows a thinking phase."""
        return self.think_end is not None
