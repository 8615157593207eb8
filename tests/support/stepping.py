"""Scripted models that write in steps, for the tests of speculation on steps."""

from support.scripted import Script, ScriptedEngine
from support.searching import PROMPT_LENGTH

BAD = "x"
"""A step of these is scored 0.1, any other 0.9."""


def writes(steps: str) -> Script:
    """A model that writes the n-th character of `steps`, twice, as its n-th step; then the end of thinking
    and 9."""

    def script(text: str, seed: int) -> str:
        thought, end, said = text[PROMPT_LENGTH:].partition("|")
        if end:
            return "9$"[len(said) :] or "$"
        count, current = thought.count(";"), thought.rpartition(";")[2]
        if count >= len(steps) and not current:
            return "|"
        return f"{steps[count]}{steps[count]};"[len(current)]

    return script


def last_step(text: str) -> str:
    """The last step of a text that ends with a mark."""
    return text.removesuffix(";").rpartition(";")[2].removeprefix("Qtask:")


def judged(text: str) -> float:
    return 0.1 if last_step(text).endswith(BAD) else 0.9


def drafting(draft: str, policy: str, **options) -> ScriptedEngine:
    """A policy, a draft model and a step scorer."""
    return ScriptedEngine(
        {"policy": writes(policy), "draft": writes(draft)}, rewards={"prm": judged}, **options
    )
