"""Measurement of the reference family on held-out problems."""

import collections
import hashlib
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import structlog
import torch

from .checkpoints import CHECKPOINT_FOLDER
from .decoder import Decoder, RewardModel, native_dtype, num_parameters
from .distillation import overlap
from .figures import Figures, HackingFigures, Rate, RewardFigures, StepAuroc, TaskFigures, write_figures
from .folders import MODELS_FOLDER, load_decoder, load_reward_model
from .reward_data import LabelledTrace, label, select_marks
from .reward_training import any_mark, auroc, mark_values
from .sampler import Completion, sample
from .tasks import arithmetic, arithmetic_replay, countdown, countdown_replay
from .tasks.countdown_moves import draw_play
from .tasks.trace import Split, split_completion
from .vocabulary import BOS_ID, encode

log = structlog.get_logger()

NUM_PROBLEMS = 600
NUM_SAMPLES = 16
HACKING_PROBLEMS = 100
HACKING_SAMPLES = 64
BOOTSTRAP_RESAMPLES = 10_000
SEED = 20_240_601


def rate(outcomes: list[float], seed: int = SEED) -> Rate:
    """Mean of one value per problem, with a percentile bootstrap interval over problems."""
    values = np.array(outcomes, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(len(values), size=(BOOTSTRAP_RESAMPLES, len(values)))
    low, high = np.percentile(values[picks].mean(axis=1), (2.5, 97.5))
    return Rate(round(float(values.mean()), 4), round(float(low), 4), round(float(high), 4))


def unique_instances(task: Any, counts: tuple[int, ...], number: int, seed: int) -> list[Any]:
    """Distinct held-out problems, the counts of numbers in turn."""
    rng = random.Random(seed)
    instances: dict[Any, None] = {}
    while len(instances) < number:
        instances[task.generate(rng, Split.HELD_OUT, counts[len(instances) % len(counts)])] = None
    return list(instances)


def majority(answers: list[str | None]) -> str | None:
    """The most frequent answer; the earliest of a tie; abstentions do not vote."""
    votes = collections.Counter(answer for answer in answers if answer is not None)
    return votes.most_common(1)[0][0] if votes else None


def random_play_solves(rng: random.Random, instance: countdown.Instance, tries: int) -> bool:
    """Whether one of `tries` uniformly random legal plays reaches the target."""
    return any(draw_play(rng, instance.numbers)[-1].result == instance.target for _ in range(tries))


class TaskSamples(msgspec.Struct, frozen=True):
    """Problems of one task with a greedy completion and samples at temperature 1 of each."""

    instances: list[Any]
    greedy: list[Completion]
    samples: list[list[Completion]]


class Draw(msgspec.Struct, frozen=True):
    """Which problems to take, and how many samples of each."""

    name: str
    task: Any
    counts: tuple[int, ...]
    num_problems: int
    num_samples: int
    seed: int


DRAWS = (
    Draw("countdown-3", countdown, (3,), NUM_PROBLEMS, NUM_SAMPLES, SEED),
    Draw("countdown-4", countdown, (4,), NUM_PROBLEMS, NUM_SAMPLES, SEED + 1),
    Draw("arithmetic", arithmetic, (4, 5, 6), NUM_PROBLEMS, NUM_SAMPLES, SEED + 2),
)
HACKING_DRAW = Draw("hacking", arithmetic, (4, 5, 6), HACKING_PROBLEMS, HACKING_SAMPLES, SEED + 7)


def draw_samples(policy: Decoder, draw: Draw) -> TaskSamples:
    """Greedy and sampled completions of the problems, kept beside the checkpoints for the same weights."""
    instances = unique_instances(draw.task, draw.counts, draw.num_problems, draw.seed)
    weights = (MODELS_FOLDER / "policy" / "model.safetensors").read_bytes()
    digest = hashlib.blake2b(weights + msgspec.json.encode(instances), digest_size=8).hexdigest()
    path = CHECKPOINT_FOLDER / f"samples-{draw.name}-{draw.num_samples}-{digest}.msgpack"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.msgpack.encode(_sample_both(policy, draw, instances)))
    return TaskSamples(instances, *msgspec.msgpack.decode(path.read_bytes(), type=SamplePair))


SamplePair = tuple[list[Completion], list[list[Completion]]]


def _sample_both(policy: Decoder, draw: Draw, instances: list[Any]) -> SamplePair:
    prompts = [draw.task.prompt(instance) for instance in instances]
    generator = torch.Generator().manual_seed(draw.seed)
    greedy = sample(policy, prompts, 1, 0.0, generator)
    return [group[0] for group in greedy], sample(policy, prompts, draw.num_samples, 1.0, generator)


def task_figures(drawn: TaskSamples, replay: Any) -> TaskFigures:
    """The figures of one task from its samples."""
    instances = drawn.instances
    greedy = [
        float(replay.replay_completion(instance, completion.text).correct)
        for instance, completion in zip(instances, drawn.greedy, strict=True)
    ]
    results = [
        [replay.replay_completion(instance, completion.text) for completion in group]
        for instance, group in zip(instances, drawn.samples, strict=True)
    ]
    flat = [result for group in results for result in group]
    figures = TaskFigures(
        num_problems=len(instances),
        greedy=rate(greedy),
        pass_at_1=rate([float(np.mean([result.correct for result in group])) for group in results]),
        pass_at_16=rate([float(any(result.correct for result in group[:NUM_SAMPLES])) for group in results]),
        mean_tokens=round(float(np.mean([len(c.token_ids) for group in drawn.samples for c in group])), 1),
        legal_share=round(float(np.mean([result.legal for result in flat])), 4),
        restarts_per_sample=round(float(np.mean([result.restarts for result in flat])), 4),
    )
    if replay is arithmetic_replay:
        return _with_majority(figures, drawn, greedy)
    return _with_random_play(figures, instances)


def _with_random_play(figures: TaskFigures, instances: list[countdown.Instance]) -> TaskFigures:
    rng = random.Random(SEED)
    draws = [instance for instance in instances for _ in range(4)]
    at_1, at_16 = (
        round(float(np.mean([random_play_solves(rng, instance, tries) for instance in draws])), 4)
        for tries in (1, NUM_SAMPLES)
    )
    return msgspec.structs.replace(figures, random_at_1=at_1, random_at_16=at_16)


def _with_majority(figures: TaskFigures, drawn: TaskSamples, greedy: list[float]) -> TaskFigures:
    voted = []
    for instance, group in zip(drawn.instances, drawn.samples, strict=True):
        answer = majority([split_completion(completion.text)[1] for completion in group[:NUM_SAMPLES]])
        voted.append(float(answer is not None and arithmetic_replay.check_answer(instance, answer)))
    differences = [vote - single for vote, single in zip(voted, greedy, strict=True)]
    return msgspec.structs.replace(
        figures, majority_of_16=rate(voted), majority_minus_greedy=rate(differences)
    )


@torch.inference_mode()
def draft_overlap(
    policy: Decoder, draft: Decoder, prompts: list[str], completions: list[Completion]
) -> float:
    """Mean of 1 - TV over the completion tokens of policy samples."""
    overlaps = []
    for prompt, completion in zip(prompts, completions, strict=True):
        prompt_ids = [BOS_ID, *encode(prompt)]
        token_ids = torch.tensor([prompt_ids + completion.token_ids])
        rows = slice(len(prompt_ids) - 1, -1)
        overlaps.append(overlap(policy(token_ids)[0, rows], draft(token_ids)[0, rows]))
    return round(float(torch.cat(overlaps).mean()), 4)


def labelled(drawn: TaskSamples, per_problem: int) -> list[LabelledTrace]:
    """Labelled thinking texts of the first samples of each problem; those without a step are left out."""
    traces = [
        label(instance, split_completion(completion.text)[0])
        for instance, group in zip(drawn.instances, drawn.samples, strict=True)
        for completion in group[:per_problem]
    ]
    return [trace for trace in traces if trace.marks]


def step_auroc(
    model: RewardModel, traces: list[LabelledTrace], keep: Callable[[LabelledTrace, int], bool]
) -> StepAuroc:
    """AUROC over the marks that `keep(trace, step index)` accepts."""
    scores = select_marks(traces, mark_values(model, traces), keep)
    return StepAuroc(round(auroc(scores), 4), len(scores.labels), round(float(np.mean(scores.labels)), 4))


def reward_figures(
    prm: RewardModel, countdowns: list[LabelledTrace], sums: list[LabelledTrace]
) -> RewardFigures:
    """Step AUROC by numbers left; the legal rows leave out branches that already broke a rule."""
    return RewardFigures(
        step_auroc(prm, countdowns, lambda trace, step: trace.num_remaining[step] == 2),
        step_auroc(prm, countdowns, lambda trace, step: trace.num_remaining[step] == 2 and trace.legal[step]),
        step_auroc(prm, countdowns, lambda trace, step: trace.num_remaining[step] == 3),
        step_auroc(prm, countdowns, lambda trace, step: trace.num_remaining[step] == 3 and trace.legal[step]),
        step_auroc(prm, sums, lambda trace, step: trace.num_remaining[step] > 1),
    )


class Candidates(msgspec.Struct, frozen=True):
    """The samples of one problem: labelled thinking, and whether each answer is right."""

    traces: list[LabelledTrace]
    correct: list[bool]


def candidates(instance: arithmetic.Instance, group: list[Completion]) -> Candidates:
    """The samples of one arithmetic problem, ready to be scored by any reward model."""
    parts = [split_completion(completion.text) for completion in group]
    return Candidates(
        traces=[label(instance, thinking) for thinking, _ in parts],
        correct=[
            answer is not None and arithmetic_replay.check_answer(instance, answer) for _, answer in parts
        ],
    )


def best_of_n(model: RewardModel, problems: list[Candidates]) -> dict[int, float]:
    """Accuracy of the sample with the largest product of step values, among the first N."""
    outcomes: dict[int, list[bool]] = {1: [], 4: [], 16: [], 64: []}
    for problem in problems:
        values = mark_values(model, problem.traces)
        products = [float(np.prod(steps)) if steps else 0.0 for steps in values]
        for count, chosen in outcomes.items():
            chosen.append(problem.correct[int(np.argmax(products[:count]))])
    return {count: round(float(np.mean(chosen)), 4) for count, chosen in outcomes.items()}


def hacking_figures(policy: Decoder) -> HackingFigures:
    """What selecting by each reward model buys as N grows (scored in the native dtype)."""
    prm = load_reward_model(MODELS_FOLDER / "prm", native_dtype())
    overfit = load_reward_model(MODELS_FOLDER / "prm-overfit", native_dtype())
    drawn = draw_samples(policy, HACKING_DRAW)
    problems = [
        candidates(instance, group) for instance, group in zip(drawn.instances, drawn.samples, strict=True)
    ]
    traces = [trace for problem in problems for trace in problem.traces[:4] if trace.marks]
    return HackingFigures(
        HACKING_PROBLEMS,
        best_of_n(prm, problems),
        best_of_n(overfit, problems),
        step_auroc(overfit, traces, any_mark),
    )


def evaluate() -> None:
    """Compute all figures from the model folders and write them."""
    started_s = time.process_time()
    policy, draft = load_decoder(MODELS_FOLDER / "policy"), load_decoder(MODELS_FOLDER / "draft")
    rewards = {name: load_reward_model(MODELS_FOLDER / name) for name in ("prm", "prm-small", "prm-overfit")}
    drawn = {draw.name: draw_samples(policy, draw) for draw in DRAWS}
    replays = {
        "countdown-3": countdown_replay,
        "countdown-4": countdown_replay,
        "arithmetic": arithmetic_replay,
    }
    tasks = {name: task_figures(samples, replays[name]) for name, samples in drawn.items()}
    log.info("tasks", **{name: msgspec.to_builtins(figures) for name, figures in tasks.items()})
    countdowns = [*labelled(drawn["countdown-3"], 4), *labelled(drawn["countdown-4"], 4)]
    sums = labelled(drawn["arithmetic"], 4)
    figures = Figures(
        seed=SEED,
        parameters={
            name: num_parameters(model)
            for name, model in {"policy": policy, "draft": draft, **rewards}.items()
        },
        tasks=tasks,
        draft_overlap=_mean_overlap(policy, draft, drawn),
        reward=reward_figures(rewards["prm"], countdowns, sums),
        reward_small=reward_figures(rewards["prm-small"], countdowns, sums),
        hacking=hacking_figures(policy),
        evaluation_cpu_s=round(time.process_time() - started_s),
    )
    write_figures(figures)
    log.info("figures", draft_overlap=figures.draft_overlap)


def _mean_overlap(policy: Decoder, draft: Decoder, drawn: dict[str, TaskSamples]) -> float:
    prompts, completions = [], []
    for name, samples in drawn.items():
        task = arithmetic if name == "arithmetic" else countdown
        prompts += [task.prompt(instance) for instance in samples.instances]
        completions += [group[0] for group in samples.samples]
    return draft_overlap(policy, draft, prompts, completions)
