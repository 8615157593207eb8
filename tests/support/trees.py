"""Engines for tests of tree search: each branch writes a step that the test planted, or one of its own
seed's, and the reward model reads its value off the step."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from branchwise.engine.protocol import ExtendParams, Extension, Meter, ScoreParams, Scores, SeqId
from branchwise.reasoning.run import branch_seed
from branchwise.reasoning.solution import Solution
from branchwise.verifiers.base import Candidate, Score
from support.scripted import EOS, Script, ScriptedEngine
from support.searching import PROMPT_LENGTH


class TreeEngine(ScriptedEngine):
    """A scripted engine that fails the test where a finished path gets another token, or where a position is
    scored again on a branch or below it. `tokens_paid` counts sampled and appended tokens of the policy;
    `appended` the appended ones."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.appended = 0
        self.broken: list[str] = []

    @property
    def tokens_paid(self) -> int:
        return self.tokens_sampled + self.appended

    async def extend(
        self, seq: SeqId, params: ExtendParams, meter: Meter, on_tokens: Any = None
    ) -> Extension:
        if ord(EOS) in self._sequences[seq].tokens[PROMPT_LENGTH:]:
            self.broken.append(f"sequence {seq} was extended behind its end")
        return await super().extend(seq, params, meter, on_tokens)

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        again = self._sequences[seq].paid_heads & set(params.reward_at)
        if again:
            self.broken.append(f"positions {again} of sequence {seq} were scored again")
        return await super().score(seq, params, meter)

    def append(self, seq: SeqId, tokens: Any) -> None:
        super().append(seq, tokens)
        if self._sequences[seq].model == "policy":
            self.appended += len(tokens)


class Unsure:
    """A step verifier that cannot tell where the thinking holds `word`, and says .5 elsewhere."""

    name = "unsure"
    sound = False
    oracle = False
    step_scores = True
    models: tuple[str, ...] = ()

    def __init__(self, word: str) -> None:
        self.word = word

    async def score(self, candidate: Candidate) -> Score:
        return Score(value=None if self.word in candidate.thinking else 0.5)


def planted(steps: Mapping[str, str], **options: Any) -> TreeEngine:
    """Branch "0.2" writes `steps["0.2"]` as its own step, whatever it goes on from. A branch that is not
    planted ends its thinking and answers 0. A step is worth the digit before its mark, in tenths: "a7;" is
    worth .7; "|4$" ends the thinking and answers 4."""
    by_seed = {branch_seed(0, "task", tuple(map(int, name.split(".")))): step for name, step in steps.items()}

    def script(text: str, seed: int) -> str:
        written = text[PROMPT_LENGTH:]
        thought, ended, said = written.partition("|")
        if ended:
            answer = by_seed.get(seed, "|").partition("|")[2] or "0$"
            return answer[len(said) :] or EOS
        current = thought.rpartition(";")[2]
        return by_seed.get(seed, "|0$")[len(current) :] or EOS

    return TreeEngine({"policy": script}, rewards={"prm": digit_value}, **options)


def steps_and_an_answer(
    steps: int, answers: Sequence[str], *, letters: str = "ab", longest: int = 3, prompt: int | None = None
) -> Script:
    """Steps of a letter and a digit by the branch's seed, so that duplicates occur; behind `steps` of them,
    sooner or later, the end of thinking and one of the answers. The prompt has `prompt` characters, or ends
    with the last colon."""

    def script(text: str, seed: int) -> str:
        written = text.rpartition(":")[2] if prompt is None else text[prompt:]
        thought, ended, said = written.partition("|")
        done, _, current = thought.rpartition(";")
        rng = random.Random(f"{done}{seed}")
        if ended:
            return f"{rng.choice(answers)}{EOS}"[len(said) :] or EOS
        if not current and thought.count(";") >= steps and rng.random() < 0.7:
            return "|"
        step = f"{rng.choice(letters) * rng.randint(1, longest)}{rng.randint(0, 9)};"
        return step[len(current)] if len(current) < len(step) else ";"

    return script


def wandering(*, letters: str = "ab", steps: int = 3, **options: Any) -> TreeEngine:
    """Each branch writes steps of its own seed's, and answers a digit."""
    script = steps_and_an_answer(steps, "3456", letters=letters, longest=4, prompt=PROMPT_LENGTH)
    return TreeEngine({"policy": script}, rewards={"prm": digit_value}, **options)


def digit_value(text: str) -> float:
    """The digit before the last mark, in tenths."""
    digit = text.rstrip(";")[-1:]
    return int(digit) / 10 if digit.isdigit() else 0.5


def reasons(solution: Solution, reason: str) -> set[str]:
    """The branches that were pruned for that reason."""
    return {node.branch for node in solution.graph.nodes() if node.reason == reason}
