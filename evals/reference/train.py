"""Entry of `make reference`: train the reference family stage by stage, resuming from checkpoints."""

import argparse

import torch

from .batches import trace_batches
from .decoder import DRAFT_CONFIG, POLICY_CONFIG
from .language_training import LanguageTraining, Recipe, trace_loss

POLICY = Recipe("policy", POLICY_CONFIG, seed=1, num_steps=13_000)


def train_policy(recipe: Recipe = POLICY) -> None:
    """Train the policy on fresh traces; a resumed run draws from another stream of them."""
    training = LanguageTraining(recipe)
    training.run(trace_batches(recipe.seed + training.step, recipe.tokens_per_batch), trace_loss)


STAGES = {"policy": train_policy}


def main() -> None:
    """Run the stages named on the command line, by default all in order."""
    parser = argparse.ArgumentParser(prog="python -m branchwise.evals.reference.train", description=__doc__)
    parser.add_argument("stage", nargs="?", default="all", choices=[*STAGES, "all"])
    stage = parser.parse_args().stage
    torch.set_num_threads(1)
    for name, run in STAGES.items():
        if stage in (name, "all"):
            run()


if __name__ == "__main__":
    main()
