"""A back end that writes what was recorded, and nothing else."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio
import anyio.lowlevel
import msgspec

from ...engine.errors import BranchwiseError, CapabilityError, UsageError
from ...engine.protocol import (
    Capabilities,
    EngineUsage,
    ExtendParams,
    Extension,
    Meter,
    ModelCost,
    ModelInfo,
    ScoreParams,
    Scores,
    SeqId,
    Work,
    WorkKind,
)
from ...engine.sampling.params import SamplingParams
from ...engine.text.profile import ModelProfile
from ...engine.text.stop import Stop, StopChecker
from ...engine.token_lists import TokenLists
from .pieces import PieceTokenizer
from .recording import Completion, RecordedProblem

NO_COST = ModelCost(block_params=0, layers=0, attention_width=0, hidden=0, head_columns=0)


class RecordExhausted(BranchwiseError):
    """The search asked for a continuation that was not recorded."""


class _Branch(msgspec.Struct):
    """A sequence. `served`: the completion that it follows, from the end of the prompt on; `order`: the
    completions of its root that nobody was served yet."""

    tokens: list[int]
    prompt: int
    order: Iterator[Completion]
    served: Completion | None = None
    pieces: tuple[int, ...] = ()
    own_prompt: bool = False
    running: anyio.CancelScope | None = None


class RecordedEngine(TokenLists[_Branch]):
    """Implements `Backend` on one problem's completions.

    Each child of the prompt, and the prompt itself, is served the next completion of a seeded order, without
    replacement, and grows by its recorded number of tokens. Any other continuation raises `RecordExhausted`,
    sets `exhausted` and calls `on_exhausted`: a fork behind the prompt, text after an append or a truncation,
    more children than were recorded. `refusal` is set where the search samples otherwise than the recording
    did. It scores nothing.
    """

    capabilities = Capabilities(exact_meter=True, seeds=True)

    def __init__(
        self,
        problem: RecordedProblem,
        *,
        name: str,
        temperature: float | None = None,
        on_exhausted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._problem = problem
        self._temperature = temperature
        self._on_exhausted = on_exhausted
        self._tokenizer = PieceTokenizer()
        self.exhausted = False
        self.refusal: UsageError | None = None
        longest = max((c.tokens or 1 for c in problem.completions), default=1)
        self.models: Mapping[str, ModelInfo] = {
            "policy": ModelInfo(
                name="policy",
                source=name,
                head="lm",
                vocab_size=self._tokenizer.vocab_size,
                max_model_len=longest + 2,
                cost=NO_COST,
                tokenizer=self._tokenizer,
                profile=ModelProfile(final_answer="eos"),
                sampling=SamplingParams(temperature=1.0 if temperature is None else temperature),
                weights_digest="",
            )
        }

    def open(
        self,
        tokens: Sequence[int],
        *,
        seed: int,
        model: str = "policy",
        namespace: str = "",
        tenant: str | None = None,
        usage: EngineUsage | None = None,
    ) -> SeqId:
        order = list(self._problem.completions)
        random.Random(seed).shuffle(order)
        # Only the problem's own prompt was recorded: a second root has nothing to say.
        served = iter(order) if not self._sequences else iter(())
        return self._add(_Branch(tokens=list(tokens), prompt=len(tokens), order=served, own_prompt=True))

    def fork(self, seq: SeqId, seeds: Sequence[int]) -> list[SeqId]:
        parent = self._idle(seq)
        children = []
        for _ in seeds:
            child = _Branch(tokens=list(parent.tokens), prompt=parent.prompt, order=parent.order)
            if len(parent.tokens) == parent.prompt:
                self._serve(child)
            children.append(self._add(child))
        return children

    async def extend(
        self,
        seq: SeqId,
        params: ExtendParams,
        meter: Meter,
        on_tokens: Callable[[Sequence[int]], None] | None = None,
    ) -> Extension:
        branch = self._idle(seq)
        self._check_sampling(params.sampling)
        await anyio.lowlevel.checkpoint()
        coming = self._continuation(branch)
        info = self.models["policy"]
        checker = StopChecker(params.stop, info.profile, self._tokenizer, branch.tokens)
        start, generated, stop = len(branch.tokens), 0, self._last_stop(branch)
        with self._busy(branch) as scope:
            for token in coming:
                if generated == params.max_tokens:
                    stop = Stop.LENGTH
                    break
                if not await self._paid(meter, len(branch.tokens), params.order):
                    stop = Stop.BUDGET
                    break
                branch.tokens.append(token)
                generated += 1
                last = generated == len(coming)
                if (found := checker.push(token)) is not None and not last:
                    stop = found
                    break
        if scope.cancelled_caught:
            stop = Stop.CANCELLED
        kept = (*branch.tokens[start:][: checker.kept()], *checker.tail()) if generated else ()
        branch.tokens[start:] = kept
        return Extension(tokens=kept, logprobs=(), stop=stop, generated=generated)

    async def score(self, seq: SeqId, params: ScoreParams, meter: Meter) -> Scores:
        raise CapabilityError("a recording scores nothing: its own scores are its verifier's")

    def _serve(self, branch: _Branch) -> None:
        branch.served = next(branch.order, None)
        if branch.served is not None:
            count = 1 if branch.served.tokens is None else branch.served.tokens
            branch.pieces = self._tokenizer.cut(branch.served.text, count) if count else ()

    def _continuation(self, branch: _Branch) -> tuple[int, ...]:
        """What was recorded behind the branch's tokens. Raises `RecordExhausted` where nothing was."""
        if branch.served is None and branch.own_prompt and len(branch.tokens) == branch.prompt:
            self._serve(branch)
        written = tuple(branch.tokens[branch.prompt :])
        at_end = bool(written) and len(written) >= len(branch.pieces)
        if branch.served is None or at_end or branch.pieces[: len(written)] != written:
            self.exhausted = True
            self._on_exhausted()
            raise RecordExhausted(f"{self._problem.id}: the recording has no such continuation")
        return branch.pieces[len(written) :]

    def _last_stop(self, branch: _Branch) -> Stop:
        return Stop.EOS if branch.served is not None and branch.served.complete else Stop.LENGTH

    def _check_sampling(self, sampling: SamplingParams) -> None:
        if sampling == self.models["policy"].sampling:
            return
        known = self._temperature
        recorded = "an unknown temperature" if known is None else f"temperature {known:g}"
        self.refusal = UsageError(
            f"the strategy samples at temperature {sampling.temperature:g}, the recording holds samples "
            f"at {recorded}: leave the temperature out, and take best_of_n(n=1) for a single sample"
        )
        raise self.refusal

    async def _paid(self, meter: Meter, position: int, order: tuple[int, ...]) -> bool:
        """Whether the meter covers one more token."""
        work = Work("policy", WorkKind.DECODE, position - 1, 1, (position - 1,), tokens=1)
        if not await self._granted(meter, work, order):
            return False
        meter.commit(work)
        self.notify()  # branches that are not to run ahead of this one may go on
        return True
