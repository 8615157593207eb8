"""The form that a caller wants the answer phase in: a grammar, JSON of a schema above all."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..engine.errors import CapabilityError
from ..engine.protocol import Backend
from ..engine.text.grammar import Constraint, Grammar, json_grammar
from .tools.call import decode

if TYPE_CHECKING:
    from .branch import SearchBranch

INSTRUCTION = "Reason step by step, and give your final answer as JSON of this schema: {}"
"""The system message of a model that would otherwise be asked for a box."""


class AnswerGrammar:
    """Constrains the answer phase of the branches of one run. What a verifier asks a model is not
    constrained."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    def constraint(self, branch: "SearchBranch") -> Constraint | None:
        """Of the next tokens of a branch; None while it thinks, and where another model began it."""
        if branch.aside or branch.model != branch.run.policy or not branch.answering:
            return None
        return Constraint(self._grammar, len(branch.prompt) + (branch.phases.answer_start or 0))

    def takes(self, branch: "SearchBranch", tokens: Sequence[int]) -> bool:
        """Whether `tokens` may be forced onto a branch as it stands."""
        constraint = self.constraint(branch)
        if constraint is None:
            return True
        written = branch.tokens[constraint.start - len(branch.prompt) :]
        return constraint.grammar.fits([*written, *tokens])


class AnswerSchema(AnswerGrammar):
    """The grammar of a JSON schema."""

    def __init__(self, schema: Mapping[str, Any], grammar: Grammar) -> None:
        super().__init__(grammar)
        self.schema = schema

    @property
    def instruction(self) -> str:
        """What to tell a model that is used to another form."""
        return INSTRUCTION.format(json.dumps(self.schema))


def open_schema(schema: Mapping[str, Any] | None, backend: Backend) -> AnswerSchema | None:
    """The schema compiled for the policy. Raises `UsageError` and `CapabilityError` in one line."""
    if schema is None:
        return None
    check_constrains("schema", backend)
    info = backend.models["policy"]
    grammar = json_grammar(schema, info.tokenizer, info.profile.stop_ids, info.vocab_size)
    return AnswerSchema(schema, grammar)


def check_constrains(option: str, backend: Backend) -> None:
    """Raises `CapabilityError` where the engine cannot keep an answer to a grammar."""
    if not backend.capabilities.constrains:
        raise CapabilityError(f"{option}: this engine cannot constrain what a model writes; leave it out")


def json_answer(text: str) -> str:
    """The text of a complete answer in the one spelling that equal values have: keys sorted, no space."""
    try:
        value = decode(text)
    except ValueError:  # a number beyond all types, half of a UTF-16 pair: what could not be written again
        return text.strip()
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
