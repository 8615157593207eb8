"""A model asked for its verdict, in the tokens that it says it with."""

import enum
import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta

from .base import Candidate, Lease, Score
from .judge_prompts import BUILT_IN, filled, read_prompts
from .named import full_name

DIGITS = tuple("0123456789")
FLOOR = 0.01
"""Where the answers that were asked for are less likely than this together, the model was not answering."""


class Mode(enum.StrEnum):
    """How a judge is asked.

    - `verdict`: the probability of "Yes" against "No" (GenRM, Zhang et al. 2024, arXiv 2408.15240).
    - `critique`: the mean of that probability behind each of `critiques` sampled checks (GenRM-CoT).
    - `score`: the digit from 0 to 9, weighted by its probability, over 9 (SpecReason, Pan et al. 2025, arXiv
      2504.07891, takes the likeliest token).
    - `pairwise`: nothing of one candidate; two are compared, for a selection by `knockout`.
    """

    VERDICT = "verdict"
    CRITIQUE = "critique"
    SCORE = "score"
    PAIRWISE = "pairwise"


class Role(enum.StrEnum):
    """The open model that is asked: the judge is the policy where none is open."""

    JUDGE = "judge"
    POLICY = "policy"
    DRAFT = "draft"


class JudgeVerifier:
    """Asks a model whether a candidate is right, by the probability of its answer.

    Never sound. `model` is the one of --judge, or the policy where none is given. There is no score where the
    budget does not cover the whole question, nor where the model is unlikely to answer in the form that it
    was asked for. Unfinished work is judged as it stands.
    """

    sound = False
    oracle = False
    step_scores = True

    def __init__(
        self,
        mode: Mode = Mode.VERDICT,
        *,
        model: Role = Role.JUDGE,
        critiques: Annotated[int, Meta(ge=1, le=256)] = 4,
        critique_tokens: Annotated[int, Meta(ge=1, le=1 << 16)] = 512,
        think: bool | None = False,
        floor: Annotated[float, Meta(ge=0.0, le=1.0)] = FLOOR,
        template: str | None = None,
    ) -> None:
        """`critiques` and `critique_tokens` (the longest) are for the mode critique, whose paper takes 32.
        `think` asks the chat template for thinking before a critique; verdicts come without. `floor` is how
        likely the answers must be together. `template` is a TOML file with other texts (see `JudgePrompts`).

        Raises `UsageError` for a template that cannot be used.
        """
        self.mode = mode
        self.model = model
        self.critiques = critiques
        self.critique_tokens = critique_tokens
        self.think = think
        self.floor = floor
        self.prompts = BUILT_IN if template is None else read_prompts(template)
        self.models: tuple[str, ...] = (model,) if model is Role.DRAFT else ()
        self.asks: tuple[str, ...] = (model,)
        settings = {
            "mode": (mode, Mode.VERDICT),
            "model": (model, Role.JUDGE),
            "critiques": (critiques, 4),
            "critique_tokens": (critique_tokens, 512),
            "think": (think, False),
            "floor": (floor, FLOOR),
            "template": (template, None),
        }
        self.name = full_name("judge", **{k: v for k, (v, default) in settings.items() if v != default})

    async def score(self, candidate: Candidate) -> Score:
        """The judge's figure, None where it cannot tell."""
        if not candidate.tokens:
            return Score(detail="nothing to judge")
        match self.mode:
            case Mode.VERDICT:
                return await self._verdict(candidate.lease, self.prompts.verdict, _case(candidate))
            case Mode.CRITIQUE:
                return await self._critique(candidate)
            case Mode.SCORE:
                return await self._digit(candidate)
            case Mode.PAIRWISE:
                return Score(detail="pairwise: two candidates are compared, none is scored")

    async def prefer(self, first: Candidate, second: Candidate) -> float | None:
        """The probability that the first candidate is the better one: the mean over both orders of showing
        them, which cancels a preference for a place. None where one of the two cannot be told."""
        forward = await self._compared(first, second)
        backward = await self._compared(second, first)
        return None if forward is None or backward is None else (forward + 1.0 - backward) / 2.0

    async def _chosen(self, lease: Lease, prompt: str, options: Sequence[str]) -> "_Chosen":
        raw = await lease.choose(prompt, options, model=self.model, think=False, normalise=False)
        if raw is None:
            return _Chosen(None, "budget")
        mass = math.fsum(raw)
        if mass < self.floor or mass == 0.0:
            return _Chosen(None, f"no answer of the form: {mass:.2g} of the probability")
        return _Chosen(tuple(p / mass for p in raw))

    async def _verdict(self, lease: Lease, text: str, case: dict[str, str]) -> Score:
        chosen = await self._chosen(lease, filled(text, **case), (self.prompts.yes, self.prompts.no))
        return _told(chosen, lambda p: p[0])

    async def _critique(self, candidate: Candidate) -> Score:
        case = _case(candidate)
        verdicts: list[float] = []
        for _ in range(self.critiques):
            critique = await candidate.lease.write(
                filled(self.prompts.critique, **case),
                model=self.model,
                max_tokens=self.critique_tokens,
                think=self.think,
            )
            if critique is None:
                return Score(detail="budget")
            told = {**case, "critique": critique}
            verdict = await self._verdict(candidate.lease, self.prompts.conclude, told)
            if verdict.value is None:
                return verdict
            verdicts.append(verdict.value)
        return Score(value=math.fsum(verdicts) / len(verdicts), detail=f"{len(verdicts)} critiques")

    async def _digit(self, candidate: Candidate) -> Score:
        prompt = filled(self.prompts.score, **_case(candidate))
        return _told(await self._chosen(candidate.lease, prompt, DIGITS), expected_digit)

    async def _compared(self, first: Candidate, second: Candidate) -> float | None:
        prompt = filled(
            self.prompts.compare, problem=first.problem.with_turns, first=_work(first), second=_work(second)
        )
        chosen = await self._chosen(first.lease, prompt, (self.prompts.one, self.prompts.two))
        return None if chosen.probabilities is None else chosen.probabilities[0]


class _Chosen(NamedTuple):
    """The probabilities of the options, or why there are none."""

    probabilities: tuple[float, ...] | None
    reason: str = ""


def expected_digit(probabilities: Sequence[float]) -> float:
    """The mean of the digits 0 to 9 under their `probabilities`, over 9."""
    return math.fsum(digit * p for digit, p in enumerate(probabilities)) / 9.0


def _told(chosen: _Chosen, figure: Callable[[tuple[float, ...]], float]) -> Score:
    if chosen.probabilities is None:
        return Score(detail=chosen.reason)
    return Score(value=min(1.0, max(0.0, figure(chosen.probabilities))))


def _case(candidate: Candidate) -> dict[str, str]:
    return {"problem": candidate.problem.with_turns, "solution": _work(candidate)}


def _work(candidate: Candidate) -> str:
    """What a judge reads: the text of the answer, or the work so far while there is none."""
    return (candidate.conclusion or candidate.thinking).strip()
