"""Training of the process reward models: policy backbone, linear head, cross-entropy at marks."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import structlog
import torch
from torch import Tensor
from torch.nn import functional

from .batches import bucket_length
from .checkpoints import load_checkpoint, save_checkpoint
from .decoder import Decoder, RewardModel, native_dtype
from .optimizer import Optimizer
from .reward_data import LabelledTrace, MarkScores, select_marks
from .vocabulary import PAD_ID

log = structlog.get_logger()


class RewardRecipe(msgspec.Struct, frozen=True):
    """How one reward model is trained; `patience` counts validations without a better AUROC."""

    name: str
    seed: int
    num_steps: int
    tokens_per_batch: int = 8192
    matrix_rate: float = 0.01
    vector_rate: float = 1e-3
    warmup_steps: int = 50
    validate_every_steps: int = 200
    patience: int | None = 5


class RewardBatch(NamedTuple):
    """Token ids [B, T] int64, padded; labels and weights [B, T] fp32, the weight 1 at step marks."""

    token_ids: Tensor
    labels: Tensor
    weights: Tensor


def pad_traces(traces: list[LabelledTrace], length: int) -> RewardBatch:
    """Traces padded on the right to `length`."""
    token_ids = np.full((len(traces), length), PAD_ID, dtype=np.int64)
    labels = np.zeros((len(traces), length), dtype=np.float32)
    weights = np.zeros((len(traces), length), dtype=np.float32)
    for row, trace in enumerate(traces):
        token_ids[row, : len(trace.token_ids)] = trace.token_ids
        labels[row, trace.marks] = trace.labels
        weights[row, trace.marks] = 1
    return RewardBatch(torch.from_numpy(token_ids), torch.from_numpy(labels), torch.from_numpy(weights))


def epoch_batches(
    traces: list[LabelledTrace], tokens_per_batch: int, rng: random.Random
) -> list[list[LabelledTrace]]:
    """The traces in random batches of one bucket each."""
    by_length: dict[int, list[LabelledTrace]] = {}
    for trace in rng.sample(traces, len(traces)):
        by_length.setdefault(bucket_length(len(trace.token_ids)), []).append(trace)
    batches = []
    for length, group in by_length.items():
        size = max(1, tokens_per_batch // length)
        batches += [group[start : start + size] for start in range(0, len(group), size)]
    rng.shuffle(batches)
    return batches


def mark_loss(model: RewardModel, token_ids: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Mean binary cross-entropy in nats over the step marks of a batch [B, T]."""
    losses = functional.binary_cross_entropy_with_logits(model(token_ids), labels, reduction="none")
    return (losses * weights).sum() / weights.sum()


@torch.inference_mode()
def mark_values(model: RewardModel, traces: list[LabelledTrace], max_rows: int = 256) -> list[list[float]]:
    """The model's value in [0, 1] at each step mark of each trace."""
    values: list[list[float]] = [[] for _ in traces]
    order = sorted(range(len(traces)), key=lambda index: len(traces[index].token_ids))
    for start in range(0, len(order), max_rows):
        part = order[start : start + max_rows]
        group = [traces[index] for index in part]
        batch = pad_traces(group, max(len(trace.token_ids) for trace in group))
        scores = model(batch.token_ids).sigmoid()
        for row, index in enumerate(part):
            values[index] = scores[row, traces[index].marks].tolist()
    return values


def auroc(scores: MarkScores) -> float:
    """Area under the ROC curve by the rank-sum statistic, ties counted half; nan where one class is empty."""
    labels = np.array(scores.labels, dtype=bool)
    values = np.array(scores.values)
    num_positive, num_negative = int(labels.sum()), int((~labels).sum())
    if not num_positive or not num_negative:
        return float("nan")
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(mean_ranks[inverse][labels].sum())
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)


def any_mark(trace: LabelledTrace, step: int) -> bool:
    """Accepts every mark."""
    return True


def open_mark(trace: LabelledTrace, step: int) -> bool:
    """Accepts Countdown marks with more than one number left."""
    return trace.task == "countdown" and trace.num_remaining[step] > 1


def reward_model(policy: Decoder, seed: int) -> RewardModel:
    """The policy's backbone under a new head."""
    torch.manual_seed(seed)
    model = RewardModel(policy.config, native_dtype())
    model.model.load_state_dict(policy.model.state_dict())
    return model


class RewardTraining:
    """One run on `model`; the best weights so far and the position in the data are in its checkpoint."""

    def __init__(self, recipe: RewardRecipe, model: RewardModel) -> None:
        self.recipe = recipe
        self.model = model
        self.optimizer = Optimizer(self.model, recipe.matrix_rate, recipe.vector_rate)
        self.step = 0
        self.cpu_s = 0.0
        self.best_auroc = 0.0
        self.best_weights = self._weights()
        self.stale_validations = 0
        self._resume()

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def _resume(self) -> None:
        state = load_checkpoint(self.recipe.name)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("step", "cpu_s", "best_auroc", "best_weights", "stale_validations"):
            setattr(self, name, state[name])
        log.info("resumed", name=self.recipe.name, step=self.step)

    def save(self) -> None:
        """Write the checkpoint."""
        state: dict[str, Any] = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        for name in ("step", "cpu_s", "best_auroc", "best_weights", "stale_validations"):
            state[name] = getattr(self, name)
        save_checkpoint(self.recipe.name, state)

    def run(
        self,
        traces: list[LabelledTrace],
        validation: list[LabelledTrace],
        keep: Callable[[LabelledTrace, int], bool] = any_mark,
    ) -> None:
        """Train to the recipe's last step, or until validation AUROC stops rising."""
        recipe = self.recipe
        batches = self._all_batches(traces)
        num_steps = len(batches)
        compiled_loss = torch.compile(mark_loss, dynamic=True)
        started_cpu_s = time.process_time() - self.cpu_s
        losses: list[float] = []
        log.info("training", name=recipe.name, traces=len(traces), steps=num_steps)
        for group in batches[self.step :]:
            if recipe.patience is not None and self.stale_validations > recipe.patience:
                break
            batch = pad_traces(group, bucket_length(max(len(trace.token_ids) for trace in group)))
            value = compiled_loss(self.model, *batch)
            value.backward()
            self.optimizer.step(min((self.step + 1) / recipe.warmup_steps, 1 - self.step / num_steps))
            losses.append(value.item())
            self.step += 1
            if self.step % recipe.validate_every_steps and self.step != num_steps:
                continue
            self.cpu_s = time.process_time() - started_cpu_s
            self._validate(validation, keep, sum(losses) / len(losses))
            losses.clear()

    def _all_batches(self, traces: list[LabelledTrace]) -> list[list[LabelledTrace]]:
        def epochs() -> Iterator[list[LabelledTrace]]:
            for epoch in itertools.count():
                rng = random.Random(self.recipe.seed * 1000 + epoch)
                yield from epoch_batches(traces, self.recipe.tokens_per_batch, rng)

        return list(itertools.islice(epochs(), self.recipe.num_steps))

    def _validate(
        self, validation: list[LabelledTrace], keep: Callable[[LabelledTrace, int], bool], loss: float
    ) -> None:
        value = auroc(select_marks(validation, mark_values(self.model, validation), keep))
        better = value > self.best_auroc or self.recipe.patience is None
        self.stale_validations = 0 if better else self.stale_validations + 1
        if better:
            self.best_auroc, self.best_weights = value, self._weights()
        log.info("step", step=self.step, loss=round(loss, 4), auroc=round(value, 4), cpu_s=round(self.cpu_s))
        self.save()
