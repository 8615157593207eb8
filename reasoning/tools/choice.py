"""Which calls the caller of a search wants."""

import msgspec

from ...engine.errors import UsageError


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`required`: each answer is a call, whatever the model would write. `names`: only these tools may be
    called, None for all. `parallel`: a turn may have several calls."""

    required: bool = False
    names: tuple[str, ...] | None = None
    parallel: bool = True

    def allows(self, name: str) -> bool:
        """Whether the tool of that name may be called."""
        return self.names is None or name in self.names


AUTO = ToolChoice()


def checked_choice(choice: ToolChoice, known: "list[str]") -> ToolChoice:
    """`choice`, where it goes with the tools that there are. Raises `UsageError` in one line."""
    for name in choice.names or ():
        if name not in known:
            raise UsageError(f"tool_choice: no tool {name!r}; there are {', '.join(known) or 'none'}")
    if choice.required and not (known if choice.names is None else choice.names):
        raise UsageError("tool_choice: a call needs a tool; give tools")
    return choice
