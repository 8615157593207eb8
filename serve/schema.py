"""The bodies of requests and answers, as the OpenAI API has them, with what a search adds.

Fields that are not named here are ignored, a `namespace` among them: who asks decides what is shared.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..reasoning.budget import Budget

MOST_CHOICES = 64
MOST_CANDIDATES = 1 << 12
"""Of all choices of one request together; one choice may have as many as its strategy lets it."""
MOST_STOPS = 16
MOST_TOOLS = 128

Count = Annotated[int, Meta(ge=1)]
Choices = Annotated[int, Meta(ge=1, le=MOST_CHOICES)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
StopText = Annotated[str, Meta(min_length=1, max_length=1000)]
Stops = StopText | Annotated[list[StopText], Meta(max_length=MOST_STOPS)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class BudgetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The hard limits of one request, for all its choices together; see `reasoning.budget.Budget`."""

    tokens: Count | None = None
    flops: Count | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    kv_tokens: Count | None = None
    answer_reserve: Annotated[int, Meta(ge=0)] | None = None

    def as_budget(self) -> Budget:
        """Raises `UsageError` for limits that do not go together."""
        return Budget(**msgspec.structs.asdict(self))


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`include_usage`: a last chunk with the usage. `search_events`: chunks without choices whose
    `search_event` is an event of the search."""

    include_usage: bool = False
    search_events: bool = False


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON schema with a name, which is not looked at; it is always kept to, `strict` or not."""

    schema: dict[str, Any]
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer: free text, any JSON object, or JSON of the schema in `json_schema`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: NamedSchema | None = None


class Asking(msgspec.Struct, kw_only=True):
    """What both endpoints take.

    `reasoning_effort` is a budget by name, and "none" an answer without thinking.
    `model`: the served name, or that name, a colon and a strategy. `strategy`: a strategy in the one grammar,
    or an object with its name as `type`. `budget`: limits of this request, in the grammar of the command line
    or as an object. `max_tokens` is the longest candidate, `max_completion_tokens` the most that all of the
    search may spend. `stop` ends the text of the answer. `logit_bias` is by token id, and
    holds for all that the model writes on the way to an answer.
    """

    model: str
    strategy: str | dict[str, Any] | None = None
    budget: BudgetSpec | str | None = None
    reasoning_effort: Effort | None = None
    n: Choices | None = None
    seed: Seed | None = None
    stop: Stops | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message; only parts of type "text" can be read."""

    type: str
    text: str | None = None


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments` is a JSON object as text."""

    name: str
    arguments: str = "{}"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the client runs, or ran: the message with its result names its `id`."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class FunctionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the client; `parameters` is a JSON schema of an object."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model may call."""

    function: FunctionSpec
    type: Literal["function"] = "function"


class ChosenFunction(msgspec.Struct, frozen=True):
    """The name of a function among the tools."""

    name: str


class NamedChoice(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """This function must be called."""

    function: ChosenFunction


class ChosenTool(msgspec.Struct, frozen=True):
    """A tool of `AllowedTools`."""

    function: ChosenFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct, frozen=True):
    """The tools that may be called ("auto"), or of which one must be ("required")."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ChosenTool], Meta(min_length=1)]


class AllowedChoice(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """Some of the tools only."""

    allowed_tools: AllowedTools


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class ChatRequest(Asking, kw_only=True):
    """The body of `/v1/chat/completions`. `tool_choice`: "auto", "none", "required", or an object that names
    a function, or the tools that are allowed."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Annotated[list[ToolSpec], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None


class CompletionRequest(Asking, kw_only=True):
    """The body of `/v1/completions`. `prompt` is a text or a list of token ids, which the model goes on from
    as they are, or several of them. `best_of` candidates are sampled for each, and the likeliest is given."""

    prompt: str | Annotated[list[str | int | list[int]], Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    best_of: Choices | None = None
    suffix: str | None = None


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """`cached_tokens`: positions that the prefix cache of this key held, of all models, up to those of the
    prompt."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The break-down of `completion_tokens`: `reasoning_tokens` are those not in `content`, which are the
    thinking of the chosen path (`thinking_tokens`) and what was spent beside it (`discarded_tokens`)."""

    reasoning_tokens: int
    thinking_tokens: int
    discarded_tokens: int


class SearchUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a search spends that has no place in the API's own figures; `engine` has one object per choice."""

    flops: int
    scored_tokens: int
    engine: list[dict[str, Any]]


class ReplyUsage(msgspec.Struct, frozen=True, kw_only=True):
    """`completion_tokens`: all tokens spent, on every branch of every choice."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
    search: SearchUsage


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the search behind one choice ended; see `reasoning.solution.Solution`."""

    answer: str | None
    score: float | None
    verified: bool | None
    reason: str
    seed: int
    strategy: dict[str, Any]
    candidates: int
    notes: list[str]


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its natural log-probability under the raw distribution; `bytes` is its text in UTF-8."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    """A token of the answer. A forced one, which was not drawn, has log-probability 0."""

    top_logprobs: list[TopLogprob] = []


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """One entry per token of the answer phase."""

    content: list[TokenLogprob]


class ReplyMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is the text of the answer phase, or what stands there before `tool_calls`;
    `reasoning_content` what was thought before it."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `finish_reason` is "length" where a limit ended the search or the chosen candidate, and
    "tool_calls" where the client is to run some."""

    index: int
    message: ReplyMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: ChatLogprobs | None = None
    search: SearchReport | None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/chat/completions`. `created` is in seconds since 1970."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ReplyUsage
    object: Literal["chat.completion"] = "chat.completion"
    system_fingerprint: str | None = None


class TextLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """The log-probabilities of a completion, one entry of each list per token; `text_offset` counts
    characters. The first token of an echoed prompt has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One completion; the fields as in `ChatChoice`."""

    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    reasoning_content: str | None = None
    logprobs: TextLogprobs | None = None
    search: SearchReport | None = None


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/v1/completions`."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: ReplyUsage
    object: Literal["text_completion"] = "text_completion"
    system_fingerprint: str | None = None


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A name that `model` may have."""

    id: str
    created: int
    owned_by: str = "branchwise"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The served model, plain and with each strategy."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The server answers; `running` and `waiting` count searches."""

    status: Literal["ok"] = "ok"
    model: str
    running: int
    waiting: int
