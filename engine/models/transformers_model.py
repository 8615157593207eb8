"""Any causal language model of transformers as a step model: its own modules, this engine's attention and KV.

The backbone runs on packed rows: everything outside of attention works on each position alone, and
`position_ids` say which it is. What stands behind the backbone (head, softcap or scale of the logits) runs
apart, on the rows that ask: a stand-in in the backbone's place hands it the hidden states.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ...kernels.interface import Attention
from ..errors import ModelLoadError
from ..protocol import ModelCost
from .paged_hook import ATTENTION, Attender, Observer, StepAttention, register
from .step_model import AttentionShape, Batch, ModelFacts

_PROBE_ROWS = 4


class TransformersModel:
    """Implements `StepModel`. `label_ids` keep only these columns of the vocabulary."""

    fixed_rows = False
    needs_row_tile = False
    fixed_memory = False
    fused_head = None

    def __init__(self, model: Any, device: torch.device, label_ids: tuple[int, ...] = ()) -> None:
        """Takes over `model`, a `PreTrainedModel` with a causal backbone; `ModelLoadError` says what about it
        does not fit, without its name."""
        register()
        model.eval().to(device).requires_grad_(False)
        model.set_attn_implementation(ATTENTION)
        self.device = device
        self.dtype: torch.dtype = model.dtype
        self._backbone = _backbone(model)
        self._cost = _block_params(self._backbone, model.config)
        if label_ids:
            model.set_output_embeddings(_columns(model.get_output_embeddings(), label_ids))
        _replace(model, self._backbone, _StandIn())
        self._behind = model
        self._shape = self._observe(model.config)
        self._hidden, self._columns = self._probe_head()

    @property
    def shape(self) -> AttentionShape:
        return self._shape

    @property
    def columns(self) -> int:
        return self._columns

    @property
    def facts(self) -> ModelFacts:
        """What the floors above ask; the configuration says how long a context may be."""
        config = self._behind.config
        longest = getattr(config, "max_position_embeddings", None)
        if not isinstance(longest, int):
            raise ModelLoadError("its config.json has no max_position_embeddings")
        return ModelFacts(
            vocab_size=config.vocab_size,
            max_position=longest,
            cost=ModelCost(
                block_params=self._cost,
                layers=self._shape.layers,
                attention_width=self._shape.heads * self._shape.head_dim,
                hidden=self._hidden,
                head_columns=self._columns,
            ),
            is_reward=self._columns != config.vocab_size,
        )

    def forward(self, batch: Batch, kv: Tensor, attention: Attention) -> Tensor:
        return self.run(
            batch.tokens, batch.positions, StepAttention(self._shape.windows, batch, kv, attention)
        )

    def run(self, tokens: Tensor, positions: Tensor, paged: Attender) -> Tensor:
        """Hidden states [rows, hidden] of packed `tokens` at `positions`, int64 [rows]."""
        output = self._backbone(
            input_ids=tokens[None], position_ids=positions[None], use_cache=False, paged=paged
        )
        return output.last_hidden_state[0]

    def plain(self, tokens: Tensor) -> Tensor:
        """Hidden states [rows, hidden] of one sequence `tokens` int64 [rows], by transformers alone."""
        self._backbone.set_attn_implementation("eager")
        try:
            return self._backbone(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
        finally:
            self._backbone.set_attn_implementation(ATTENTION)

    def head(self, hidden: Tensor, row_tile: int | None) -> Tensor:
        if row_tile is not None:
            raise ValueError("a model of transformers has no fixed rows")
        return self._behind(inputs_embeds=hidden[None], use_cache=False).logits[0].float()

    def _observe(self, config: Any) -> AttentionShape:
        """The shape that the attention calls of a few rows show."""
        observer = Observer()
        rows = torch.arange(_PROBE_ROWS, device=self.device)
        with torch.inference_mode():
            self.run(rows, rows, observer)
        calls = observer.calls
        layers = getattr(config, "num_hidden_layers", len(calls))
        if len(calls) != layers:
            raise ModelLoadError(f"{len(calls)} of its {layers} layers have attention; all of them must")
        kinds = {
            (call.query.shape[1], *call.key.shape[1::2], call.value.shape[-1], call.scale, call.softcap)
            for call in calls
        }
        if len(kinds) > 1:
            raise ModelLoadError("its layers have attention of several shapes")
        heads, kv_heads, head_dim, value_dim, scale, softcap = kinds.pop()
        if value_dim > head_dim:
            raise ModelLoadError(f"its values ({value_dim} features) are wider than its keys ({head_dim})")
        return AttentionShape(
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=scale,
            softcap=softcap,
            windows=tuple(call.window for call in calls),
        )

    def _probe_head(self) -> tuple[int, int]:
        """Width of the hidden states and of what the head makes of them."""
        rows = torch.arange(1, device=self.device)
        with torch.inference_mode():
            hidden = self.run(rows, rows, Observer())
            return hidden.shape[-1], self.head(hidden, None).shape[-1]


class _KnownHidden:
    """A backbone's output of hidden states alone; whatever else a family looks for is None."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _StandIn(nn.Module):
    """Takes the backbone's place: the hidden states are already known."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _KnownHidden:
        return _KnownHidden(inputs_embeds)


def _backbone(model: Any) -> Any:
    """The module from token ids to hidden states."""
    backbone = model.get_decoder()
    if backbone is None or backbone is model:
        backbone = model.base_model
    if backbone is model:
        raise ModelLoadError("its backbone cannot be told from its head")
    return backbone


def _replace(model: nn.Module, part: nn.Module, by: nn.Module) -> None:
    name = next(name for name, module in model.named_modules() if module is part)
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, by)


def _columns(head: nn.Module, ids: tuple[int, ...]) -> nn.Linear:
    """The rows `ids` of a linear head's weight [vocabulary, hidden] and bias."""
    if not isinstance(head, nn.Linear):
        raise ModelLoadError("its head is no linear layer, of which label tokens could be taken")
    index = torch.tensor(ids, device=head.weight.device)
    chosen = nn.Linear(head.in_features, len(ids), bias=head.bias is not None, dtype=head.weight.dtype)
    chosen.weight = nn.Parameter(head.weight.detach().index_select(0, index), requires_grad=False)
    if head.bias is not None:
        chosen.bias = nn.Parameter(head.bias.detach().index_select(0, index), requires_grad=False)
    return chosen


def _block_params(backbone: nn.Module, config: Any) -> int:
    """Matrix weights that one position meets: of stacked experts only as many as it is sent to."""
    embeddings = {id(module.weight) for module in backbone.modules() if isinstance(module, nn.Embedding)}
    chosen = getattr(config, "num_experts_per_tok", None)
    total = 0
    for parameter in backbone.parameters():
        if parameter.ndim == 2 and id(parameter) not in embeddings:
            total += parameter.numel()
        elif parameter.ndim == 3:
            total += parameter.numel() * (chosen or parameter.shape[0]) // parameter.shape[0]
    return total
