"""Entry of `make reference`: train the reference family stage by stage, resuming from checkpoints."""

import argparse
from collections.abc import Callable, Iterator

import msgspec
import torch

from .batches import TraceBatch, trace_batches
from .checkpoints import CHECKPOINT_FOLDER
from .decoder import DRAFT_CONFIG, POLICY_CONFIG, Decoder, native_dtype
from .distillation import distillation_loss
from .evaluate import evaluate
from .folders import MODELS_FOLDER, load_decoder, load_reward_model, save_folder
from .language_training import LanguageTraining, Recipe, trace_loss
from .pruning import prune_neurons
from .reward_data import LabelledTrace, Mixture, build
from .reward_training import RewardRecipe, RewardTraining, open_mark, reward_model
from .tasks.trace import Split

POLICY = Recipe("policy", POLICY_CONFIG, seed=1, num_steps=7_500, decay_share=0.4)
POLICY_FINISH = Recipe(
    "policy-finish",
    POLICY_CONFIG,
    seed=5,
    num_steps=400,
    matrix_rate=0.006,
    vector_rate=1e-3,
    warmup_steps=20,
    decay_share=0.9,
    average_decay=0.98,
    task_weights=(0.90, 0.07, 0.03),
)
DRAFT = Recipe("draft", DRAFT_CONFIG, seed=2, num_steps=1_000, decay_share=0.5)
PRM = RewardRecipe("prm", seed=3, num_steps=6_000)
PRM_SMALL = RewardRecipe("prm-small", seed=6, num_steps=1_500, validate_every_steps=250)
PRM_SMALL_NEURONS = 64
PRM_OVERFIT = RewardRecipe("prm-overfit", seed=4, num_steps=350, patience=None)

PRM_MIXTURE = Mixture(
    sampled_countdown=9_000,
    sampled_arithmetic=2_000,
    random_countdown=100_000,
    near_miss_countdown=100_000,
    corrupted_countdown=15_000,
    corrupted_arithmetic=4_000,
)
VALIDATION_MIXTURE = Mixture(400, 100, 0, 0, 0, 0)
OVERFIT_MIXTURE = Mixture(0, 720, 0, 0, 0, 0)
OVERFIT_TRACES = 2_800
SEED_STRIDE = 1_000_003


def train_policy() -> None:
    """Train the policy on fresh traces, then shortly on mostly Countdown, which lags behind arithmetic.

    A resumed run draws from another stream of traces.
    """
    training = LanguageTraining(POLICY)
    training.run(_batches(training), trace_loss)
    finish = LanguageTraining(POLICY_FINISH, training.average)
    finish.run(_batches(finish), trace_loss)
    save_folder(MODELS_FOLDER / "policy", POLICY_CONFIG, "policy", finish.average)


def train_draft() -> None:
    """Distil the draft from the policy on fresh traces."""
    training = LanguageTraining(DRAFT)
    training.run(_batches(training), distillation_loss(_policy()))
    save_folder(MODELS_FOLDER / "draft", DRAFT_CONFIG, "draft", training.average)


def train_prm() -> None:
    """Train the process reward model on every source of traces, with early stop on held-out problems."""
    traces = _reward_traces("reward_data", PRM_MIXTURE, PRM.seed)
    validation = _reward_traces("reward_validation", VALIDATION_MIXTURE, PRM.seed + SEED_STRIDE)
    training = RewardTraining(PRM, reward_model(_policy(), PRM.seed))
    training.run(traces, validation, open_mark)
    save_folder(MODELS_FOLDER / "prm", POLICY_CONFIG, "prm", training.best_weights)


def train_prm_small() -> None:
    """Train `prm` on with few of its intermediate neurons, on what it was trained on: a reward model that
    costs less to ask."""
    traces = _reward_traces("reward_data", PRM_MIXTURE, PRM.seed)
    validation = _reward_traces("reward_validation", VALIDATION_MIXTURE, PRM.seed + SEED_STRIDE)
    prm = load_reward_model(MODELS_FOLDER / "prm", native_dtype())
    training = RewardTraining(PRM_SMALL, prune_neurons(prm, PRM_SMALL_NEURONS))
    training.run(traces, validation, open_mark)
    save_folder(MODELS_FOLDER / "prm-small", training.model.config, "prm", training.best_weights)


def train_prm_overfit() -> None:
    """Train a reward model on too few arithmetic traces for too long, on purpose."""
    traces = _reward_traces("overfit_data", OVERFIT_MIXTURE, PRM_OVERFIT.seed)[:OVERFIT_TRACES]
    validation = _reward_traces("overfit_validation", OVERFIT_MIXTURE, PRM_OVERFIT.seed + SEED_STRIDE)
    training = RewardTraining(PRM_OVERFIT, reward_model(_policy(), PRM_OVERFIT.seed))
    training.run(traces, validation)
    save_folder(MODELS_FOLDER / "prm-overfit", POLICY_CONFIG, "prm", training.best_weights)


def _batches(training: LanguageTraining) -> Iterator[TraceBatch]:
    recipe = training.recipe
    return trace_batches(
        recipe.seed + SEED_STRIDE * training.step, recipe.tokens_per_batch, recipe.task_weights
    )


def _policy() -> Decoder:
    return load_decoder(MODELS_FOLDER / "policy", native_dtype())


def _reward_traces(name: str, mixture: Mixture, seed: int) -> list[LabelledTrace]:
    """Labelled traces, built once and kept beside the checkpoints. All come from training problems."""
    path = CHECKPOINT_FOLDER / f"{name}.msgpack"
    if not path.exists():
        traces = build(_policy(), mixture, Split.TRAIN, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.msgpack.encode(traces))
    return msgspec.msgpack.decode(path.read_bytes(), type=list[LabelledTrace])


STAGES: dict[str, Callable[[], None]] = {
    "policy": train_policy,
    "draft": train_draft,
    "prm": train_prm,
    "prm_small": train_prm_small,
    "prm_overfit": train_prm_overfit,
    "evaluate": evaluate,
}


def main() -> None:
    """Run the stage named on the command line, by default all in order."""
    parser = argparse.ArgumentParser(prog="python -m branchwise.evals.reference.train", description=__doc__)
    parser.add_argument("stage", nargs="?", default="all", choices=[*STAGES, "all"])
    stage = parser.parse_args().stage
    torch.set_num_threads(1)
    for name, run in STAGES.items():
        if stage in (name, "all"):
            run()


if __name__ == "__main__":
    main()
