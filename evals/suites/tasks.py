"""Tasks of samples whose answers general extraction would miss: letters of options, texts, programs."""

import ast
import warnings

import msgspec

from ...verifiers.answer_type import AnswerType
from ...verifiers.base import Verifier
from ...verifiers.compare import choice_letter
from ...verifiers.extraction import extract_answer, extract_code


class TypedTask(msgspec.Struct, frozen=True):
    """The answer is a letter of the options (`CHOICE`) or a text (`STRING`)."""

    text: str
    kind: AnswerType

    @property
    def name(self) -> str:
        return str(self.kind)

    def prompt(self) -> str:
        return self.text

    def extract(self, text: str) -> str | None:
        return extract_answer(text, self.kind)

    def canonical(self, answer: str) -> str | None:
        """The letter of a choice, else the text without case."""
        letter = choice_letter(answer) if self.kind is AnswerType.CHOICE else None
        return letter or " ".join(answer.casefold().split()) or None

    def verifier(self) -> Verifier | None:
        return None


class ProgramTask(msgspec.Struct, frozen=True):
    """The answer is a program that defines `entry_point`; equal syntax trees vote together."""

    text: str
    entry_point: str
    name: str = "program"

    def prompt(self) -> str:
        return self.text

    def extract(self, text: str) -> str | None:
        return extract_code(text, self.entry_point)

    def canonical(self, answer: str) -> str | None:
        """The syntax tree, so that comments and spacing do not part equal programs; None where the text is
        no program and no body of one."""
        for program in (answer, f"def {self.entry_point or 'f'}():\n{answer}"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return ast.dump(ast.parse(program))
            except (SyntaxError, ValueError, MemoryError, RecursionError):
                continue
        return None

    def verifier(self) -> Verifier | None:
        return None
