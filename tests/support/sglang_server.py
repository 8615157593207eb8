"""A server that speaks as SGLang 0.5.23 does on `/v1/completions`, by its source (`entrypoints/openai`).

It is not SGLang, whose packages need a GPU.
"""

from typing import Any

from branchwise.engine.text.tokenizer import Tokenizer

from .openai_server import LOGPROB, StandInServer, Write


class SglangServer(StandInServer):
    """What differs from vLLM: fields that it does not know are left aside, not refused; any model name is
    taken; the root that it names is the served name; log-probabilities name tokens by text, the end among
    them; the stop that ended a text is `matched_stop`, also where it is the model's own end; scoring takes a
    token that is written; errors are flat. `cached_tokens` are told with `--enable-cache-report` alone
    (`cache_report`), ids since it knows `return_token_ids` (`ids_out`).
    """

    def __init__(
        self,
        write: Write,
        tokenizer: Tokenizer,
        eos: frozenset[int],
        *,
        cache_report: bool = False,
        ids_out: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(write, tokenizer, eos, least_tokens=1, restriction="logit_bias", **options)
        self.root = options.get("name", "policy")
        self._cache_report = cache_report
        self._ids_out = ids_out

    def _refusal(self, body: dict[str, Any]) -> str | None:
        if body["max_tokens"] < 1:
            return "max_tokens must be positive"
        return None if body["prompt"] else "Prompt cannot be empty"

    def _error(self, message: str) -> dict[str, Any]:
        return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}

    def _choice(
        self, body: dict[str, Any], token: int, reason: str | None, matched: int | str | None
    ) -> dict[str, Any]:
        piece = self._tokenizer.decode([token])
        text = "" if reason == "stop" and matched is not None else piece  # a stop is cut off the text
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason, "matched_stop": matched}
        if body.get("return_token_ids") and self._ids_out:
            choice["token_ids"] = [token]
        if (count := body.get("logprobs")) is not None:
            top = {self._tokenizer.decode([(token + i) % 128]): LOGPROB - i for i in range(count)}
            choice["logprobs"] = {"tokens": [piece], "token_logprobs": [LOGPROB], "top_logprobs": [top]}
        return choice

    def _usage(self, body: dict[str, Any], prompt: list[int], written: list[int]) -> dict[str, Any]:
        told = super()._usage(body, prompt, written)
        return told if self._cache_report else told | {"prompt_tokens_details": None}
