"""Chat templates: Jinja text from a model folder, rendered in a sandbox exactly as transformers renders
it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ModelLoadError, UsageError

if TYPE_CHECKING:
    import jinja2


class ChatTemplate:
    """One template. It is untrusted code: it runs in Jinja's immutable sandbox."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self._source = source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt for the assistant's turn. `UsageError` where the template refuses the messages."""
        try:
            return self._compiled.render(
                messages=messages, tools=tools, documents=None, add_generation_prompt=True, **variables
            )
        except ModelLoadError:
            raise
        except Exception as error:  # the template is code: it may raise whatever Python raises
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"the chat template of {self._source} refused the messages: {reason}") from None

    @cached_property
    def _compiled(self) -> "jinja2.Template":
        import jinja2

        try:
            return _environment().from_string(self.text)
        except jinja2.TemplateError as error:
            raise ModelLoadError(f"{self._source}: the chat template does not compile ({error})") from None


def _environment() -> "jinja2.Environment":
    """The names and filters that templates on the Hub expect, as in
    `transformers.utils.chat_template_utils`."""
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's words for training; here only its body counts."""

        tags = {"generation"}  # noqa: RUF012 - Jinja's own protocol

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: object, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    def strftime_now(pattern: str) -> str:
        return datetime.now().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
