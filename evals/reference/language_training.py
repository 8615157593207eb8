"""Training of the language models: the policy from traces, the draft from the policy's distribution."""

import itertools
import time
from collections.abc import Callable, Iterator

import msgspec
import structlog
import torch
from torch import Tensor
from torch.nn import functional

from .batches import TASK_WEIGHTS, TraceBatch
from .checkpoints import load_checkpoint, save_checkpoint
from .decoder import Decoder, DecoderConfig, native_dtype, num_parameters
from .optimizer import Optimizer

log = structlog.get_logger()

REPORT_EVERY_STEPS = 250


class Recipe(msgspec.Struct, frozen=True):
    """How one language model is trained; rates are peaks, the decay is linear to 0 at the end."""

    name: str
    config: DecoderConfig
    seed: int
    num_steps: int
    tokens_per_batch: int = 8192
    matrix_rate: float = 0.02
    vector_rate: float = 3e-3
    warmup_steps: int = 100
    decay_share: float = 0.35
    average_decay: float = 0.998
    task_weights: tuple[float, ...] = TASK_WEIGHTS


def schedule(recipe: Recipe, step: int) -> float:
    """Factor on the peak rates at `step`: linear warm-up, constant, linear decay."""
    decay_steps = recipe.num_steps * recipe.decay_share
    return min(1.0, (step + 1) / recipe.warmup_steps, (recipe.num_steps - step) / decay_steps)


def trace_loss(model: Decoder, token_ids: Tensor, weights: Tensor) -> Tensor:
    """Mean cross-entropy in nats over the weighted tokens of a batch [B, T]."""
    logits = model(token_ids[:, :-1])
    losses = functional.cross_entropy(logits.flatten(0, 1), token_ids[:, 1:].flatten(), reduction="none")
    targets = weights[:, 1:].flatten()
    return (losses * targets).sum() / targets.sum()


class LanguageTraining:
    """One run: model, averaged weights, optimizer and step count, all in its checkpoint."""

    def __init__(self, recipe: Recipe, initial: dict[str, Tensor] | None = None) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.model = Decoder(recipe.config, native_dtype())
        if initial is not None:
            self.model.load_state_dict(initial)
        self.optimizer = Optimizer(self.model, recipe.matrix_rate, recipe.vector_rate)
        self.average = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.step = 0
        self.cpu_s = 0.0
        self._resume()

    def _resume(self) -> None:
        state = load_checkpoint(self.recipe.name)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"]
        self.step, self.cpu_s = state["step"], state["cpu_s"]
        log.info("resumed", name=self.recipe.name, step=self.step)

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
            "step": self.step,
            "cpu_s": self.cpu_s,
        }
        save_checkpoint(self.recipe.name, state)

    def run(self, batches: Iterator[TraceBatch], loss: Callable[..., Tensor]) -> None:
        """Train from the current step to the recipe's last one."""
        compiled_loss = torch.compile(loss, dynamic=True)
        log.info("training", name=self.recipe.name, parameters=num_parameters(self.model), step=self.step)
        started_cpu_s = time.process_time() - self.cpu_s
        losses: list[float] = []
        for batch in itertools.islice(batches, self.recipe.num_steps - self.step):
            value = compiled_loss(self.model, *batch)
            value.backward()
            self.optimizer.step(schedule(self.recipe, self.step))
            self._update_average()
            losses.append(value.item())
            self.step += 1
            if self.step % REPORT_EVERY_STEPS == 0 or self.step == self.recipe.num_steps:
                self.cpu_s = time.process_time() - started_cpu_s
                log.info("step", step=self.step, loss=sum(losses) / len(losses), cpu_s=round(self.cpu_s))
                losses.clear()
                self.save()

    @torch.no_grad()
    def _update_average(self) -> None:
        for name, weight in self.model.state_dict().items():
            self.average[name].lerp_(weight, 1 - self.recipe.average_decay)
