"""Strategies inside lm-eval: the model `branchwise`.

lm-eval finds models by import alone, so its command line is started from here:
`python -m branchwise.evals.interop.lm_eval_model run --model branchwise --model_args '{...}' --tasks ...`.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import anyio

# lm-eval adds its own models only where there is none yet: so they go before the one below.
import lm_eval.models  # noqa: F401  # pyright: ignore[reportMissingImports]
import msgspec
from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]
from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # pyright: ignore[reportMissingImports]
from tqdm import tqdm

from ...engine.errors import BranchwiseError, CapacityError, UsageError
from ...engine.protocol import ExtendParams, ScoreParams, Unlimited
from ...engine.sampling.params import SamplingParams
from ...engine.text.stop import StopRule
from ...engine.text.tokenizer import HfTokenizer
from ...reasoning.solution import Reason, Solution
from ...verifiers.problem import Problem
from .arguments import read_arguments
from .reasoner_thread import shared_reasoner
from .texts import parts_of

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_PARALLEL = 8
_GREEDY = SamplingParams(temperature=0.0)
_SURE = math.log(0.5)


class SearchLM(TemplateLM):
    """`generate_until` is a search under a budget; log-likelihoods are the policy's, scored by the engine.

    Arguments are the fields of `Opening` and `Solving`; `batch_size` is how many problems
    are in the engine at a time. The context of a request is the problem, which the model's own chat template
    then encloses. Of a task's generation arguments `until` cuts the conclusion and `max_gen_toks` bounds each
    candidate; sampling is the strategy's. Raises `UsageError` for arguments that are wrong.
    """

    def __init__(
        self,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        # lm-eval's command line says cuda:0 where nobody named a device, whatever the machine has.
        if device not in (None, "cuda:0"):
            arguments["device"] = device
        opening, self._solving = read_arguments({"seed": 0, **arguments})
        self.parallel = _whole(batch_size) or max_batch_size or DEFAULT_PARALLEL
        self._thread = shared_reasoner(opening)
        self.policy = self._thread.reasoner.models["policy"]
        self._spent = {"tokens": 0, "flops": 0, "prompt_tokens": 0, "scored_tokens": 0, "problems": 0}
        tokenizer = self.policy.tokenizer
        if not isinstance(tokenizer, HfTokenizer):
            raise UsageError(f"model {self.policy.source!r}: has no tokenizer that lm-eval could use")
        self._tokenizer = tokenizer

    @property
    def eot_token_id(self) -> int:
        end = self._tokenizer.eos_id
        return min(self.policy.profile.stop_ids) if end is None else end

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context: the start token, else the end token."""
        start = self._tokenizer.token_id(self._tokenizer.special_tokens.get("bos_token", ""))
        return self.eot_token_id if start is None else start

    @property
    def tokenizer_name(self) -> str:
        return self.policy.source

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        return self._tokenizer.encode(string)

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval writes into the `config` of its results."""
        solving = {k: v for k, v in msgspec.structs.asdict(self._solving).items() if v is not None}
        return {"branchwise": {**solving, "weights": self.policy.weights_digest, "usage": dict(self._spent)}}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """The conclusion of a search for each request; each repeat of one has the next seed. Raises
        `BranchwiseError` where a search failed."""

        async def solve(asked: tuple[Instance, int]) -> str:
            request, repeat = asked
            given: Any = request.args
            context, arguments = given
            options = self._solving.options()
            options["seed"] += repeat
            if options["max_tokens"] is None:
                options["max_tokens"] = arguments.get("max_gen_toks")
            problem = Problem(text=context, system=options.pop("system"))
            solution = await self._thread.reasoner.solve(problem, **options)
            if solution.reason is Reason.FAILED:
                raise BranchwiseError(f"the search failed: {solution.error}")
            self._count(solution)
            text = _until(parts_of(solution, self.policy).conclusion, arguments)
            self.cache_hook.add_partial("generate_until", request.args, text)
            return text

        return self._side_by_side(solve, list(_repeats(requests)), "searches", disable_tqdm)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of each whole text, in windows of the model's context where it is longer."""

        async def roll(request: Instance) -> float:
            (text,) = request.args
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.policy.max_model_len - 1,
                context_len=1,
            )
            total = 0.0
            for context, continuation in map(make_disjoint_window, windows):
                total += sum(await self._logprobs(context, continuation))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
            return total

        return self._side_by_side(roll, requests, "texts", disable_tqdm)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        async def score(request: tuple[tuple[str, str], list[int], list[int]]) -> tuple[float, bool]:
            texts, context, continuation = request
            room = self.policy.max_model_len - len(continuation)
            if room < 1:
                raise CapacityError(
                    f"continuation of {len(continuation)} tokens: the context of model "
                    f"{self.policy.source!r} holds {self.policy.max_model_len}; give a larger max_model_len"
                )
            context = context[-room:]
            logprobs = await self._logprobs(context, continuation)
            result = sum(logprobs), await self._is_greedy(context, continuation, logprobs)
            self.cache_hook.add_partial("loglikelihood", texts, result)
            return result

        return self._side_by_side(score, requests, "continuations", disable_tqdm)

    async def _logprobs(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, ...]:
        """Natural-log probability of each token of the continuation. On the reasoner's loop."""
        if not continuation:
            return ()
        backend = self._thread.reasoner.backend
        sequence = backend.open([*context, *continuation], seed=0)
        try:
            scores = await backend.score(sequence, ScoreParams(logprobs_from=len(context)), Unlimited())
        finally:
            backend.release(sequence)
        return scores.logprobs

    async def _is_greedy(
        self, context: Sequence[int], continuation: Sequence[int], logprobs: Sequence[float]
    ) -> bool:
        """Whether greedy decoding writes the continuation. A token with more than half of the probability is
        the most likely one; others are looked up by decoding, on the reasoner's loop."""
        if all(logprob > _SURE for logprob in logprobs):
            return True
        backend = self._thread.reasoner.backend
        sequence = backend.open(context, seed=0)
        try:
            params = ExtendParams(sampling=_GREEDY, stop=StopRule(), max_tokens=len(continuation))
            written = await backend.extend(sequence, params, Unlimited())
        finally:
            backend.release(sequence)
        return list(written.tokens) == list(continuation)

    def _side_by_side(
        self, function: Callable[[T], Awaitable[R]], items: Sequence[T], unit: str, disable_tqdm: bool
    ) -> list[R]:
        """`function` of each item on the reasoner's loop, a bounded number at a time; results in order."""
        results: dict[int, R] = {}
        failures: list[Exception] = []

        async def run() -> None:
            limiter = anyio.CapacityLimiter(self.parallel)

            async def one(index: int, item: T) -> None:
                try:
                    async with limiter:
                        results[index] = await function(item)
                    bar.update()
                except Exception as error:  # raised below: a task group would wrap it
                    failures.append(error)
                    group.cancel_scope.cancel()

            async with anyio.create_task_group() as group:
                for index, item in enumerate(items):
                    group.start_soon(one, index, item)

        with tqdm(total=len(items), unit=unit, disable=disable_tqdm) as bar:
            self._thread.start(run).result()
        if failures:
            raise failures[0]
        return [results[index] for index in range(len(items))]

    def _count(self, solution: Solution) -> None:
        self._spent["problems"] += 1
        for name in ("tokens", "flops", "prompt_tokens", "scored_tokens"):
            self._spent[name] += getattr(solution.usage, name)


def _repeats(requests: Sequence[Instance]) -> Iterator[tuple[Instance, int]]:
    """Each request with the number of those before it that have its context."""
    seen: Counter[str] = Counter()
    for request in requests:
        yield request, seen[request.args[0]]
        seen[request.args[0]] += 1


def _until(text: str, arguments: Mapping[str, Any]) -> str:
    """`text` up to the first stop string; leading space is no text yet."""
    given = arguments.get("until") or []
    text = text.lstrip()
    for stop in [given] if isinstance(given, str) else given:
        if stop:
            text = text.partition(stop)[0]
    return text


def _whole(batch_size: int | str | None) -> int | None:
    """lm-eval's batch size: a number, or "auto" with or without one."""
    text = str(batch_size or "").removeprefix("auto").removeprefix(":")
    return int(text) if text.isdigit() and int(text) > 0 else None


register_model("branchwise")(SearchLM)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    cli_evaluate()
