"""What a server of the OpenAI interface can do beyond it, as it showed when it was opened."""

import msgspec


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """`ids_in`: prompts may be token ids; otherwise they are sent as text, and the server may cut them into
    other tokens. `ids_out`: it returns the ids that it wrote; otherwise they are read from its text.
    `extensions`: it takes the parameters of vLLM and SGLang. `logprobs`: it tells each token's
    log-probability, and that of as many alternatives as `most_alternatives`. `scores`: it tells those of a
    prompt's tokens (`echo`), and writes `echo_tokens` more, which nobody reads. `restricts`: the parameter
    that tells it the only tokens that may come ("allowed_token_ids" or "logit_bias"), "" where it has none.
    """

    ids_in: bool = True
    ids_out: bool = True
    extensions: bool = True
    logprobs: bool = True
    most_alternatives: int = 0
    scores: bool = True
    echo_tokens: int = 0
    restricts: str = "allowed_token_ids"

    @property
    def constrains(self) -> bool:
        """Whether what it writes can be kept to a grammar: each token is checked here by its id, and one that
        does not fit is drawn again among those that do."""
        return self.ids_out and bool(self.restricts)

    def shortcomings(self) -> tuple[str, ...]:
        """What a user should know, in a line each."""
        told = []
        if not self.ids_in:
            told.append("the server takes no token ids: prompts are sent as text")
        if not self.ids_out:
            told.append("the server returns no token ids: they are read from its text")
        if not self.logprobs:
            told.append("the server tells no log-probabilities")
        if not self.constrains:
            told.append("the server cannot be kept to the tokens of a schema")
        return tuple(told)
