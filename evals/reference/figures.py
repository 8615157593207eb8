"""The figures of the family: what `figures.json` holds, and the table of them in the README."""

from pathlib import Path

import msgspec

FIGURES_PATH = Path(__file__).parent / "figures.json"
README_PATH = Path(__file__).parent / "README.md"
TABLE_START = "<!-- figures: written by the evaluate stage -->\n"
TABLE_END = "<!-- end of figures -->\n"


class Rate(msgspec.Struct, frozen=True):
    """A mean over problems, with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy on one task; random rows: uniformly random legal play (None where legal play is exact)."""

    num_problems: int
    greedy: Rate
    pass_at_1: Rate
    pass_at_16: Rate
    random_at_1: float | None = None
    random_at_16: float | None = None
    majority_of_16: Rate | None = None
    majority_minus_greedy: Rate | None = None
    mean_tokens: float
    legal_share: float
    restarts_per_sample: float


class StepAuroc(msgspec.Struct, frozen=True):
    """Area under the ROC curve of step values, the marks it rests on and the share of reachable ones."""

    value: float
    num_marks: int
    reachable_share: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.num_marks} marks, {self.reachable_share:.2f} reachable)"


class RewardFigures(msgspec.Struct, frozen=True):
    """Step AUROC of the reward model on non-final steps of policy samples, by numbers left."""

    countdown_two_left: StepAuroc
    countdown_two_left_legal: StepAuroc
    countdown_three_left: StepAuroc
    countdown_three_left_legal: StepAuroc
    arithmetic: StepAuroc


class HackingFigures(msgspec.Struct, frozen=True):
    """Arithmetic accuracy of best-of-N by the product of step values, for N = 1, 4, 16, 64."""

    num_problems: int
    by_prm: dict[int, float]
    by_prm_overfit: dict[int, float]
    step_auroc_prm_overfit: StepAuroc


class Figures(msgspec.Struct, frozen=True):
    """All figures of the family; `reward_small` None: prm-small was not measured."""

    seed: int
    parameters: dict[str, int]
    tasks: dict[str, TaskFigures]
    draft_overlap: float
    reward: RewardFigures
    hacking: HackingFigures
    evaluation_cpu_s: float
    reward_small: RewardFigures | None = None


def read_figures() -> Figures:
    """The shipped figures."""
    return msgspec.json.decode(FIGURES_PATH.read_bytes(), type=Figures)


def write_figures(figures: Figures) -> None:
    """Write the JSON, and the table between its marks in the README."""
    FIGURES_PATH.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    head, _, rest = README_PATH.read_text().partition(TABLE_START)
    tail = rest.partition(TABLE_END)[2]
    README_PATH.write_text(head + TABLE_START + figures_table(figures) + TABLE_END + tail)


def figures_table(figures: Figures) -> str:
    """The README's table, in Markdown; intervals are 95 %."""
    rows = [("figure", "wanted", "reached"), ("---", "---", "---")]
    rows += _countdown_rows(
        "Countdown-3", figures.tasks["countdown-3"], (".45 to .75", "at least .50", "at least .90")
    )
    rows += _countdown_rows("Countdown-4", figures.tasks["countdown-4"], ("", ".15 to .45", ""))
    rows += _arithmetic_rows(figures.tasks["arithmetic"])
    rows += _model_rows(figures)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


Row = tuple[str, str, str]


def _countdown_rows(name: str, task: TaskFigures, wanted: tuple[str, str, str]) -> list[Row]:
    return [
        (f"{name} greedy ({task.num_problems} problems)", wanted[0], str(task.greedy)),
        (f"{name} pass@1, T=1", wanted[1], str(task.pass_at_1)),
        (f"{name} best-of-16 with replay", wanted[2], str(task.pass_at_16)),
        (
            f"{name} uniformly random legal play, 1 / 16 tries",
            "",
            f"{task.random_at_1:.3f} / {task.random_at_16:.3f}",
        ),
    ]


def _arithmetic_rows(task: TaskFigures) -> list[Row]:
    return [
        (
            f"arithmetic, 4 to 6 numbers, greedy ({task.num_problems} problems)",
            ".40 to .75",
            str(task.greedy),
        ),
        ("arithmetic pass@1, T=1", "", str(task.pass_at_1)),
        ("arithmetic majority of 16", "", str(task.majority_of_16)),
        ("arithmetic majority of 16 minus greedy, paired", "above 0", str(task.majority_minus_greedy)),
        ("arithmetic random legal play", "", "1 by definition: a legal step computes its result"),
    ]


def _model_rows(figures: Figures) -> list[Row]:
    hacking = figures.hacking
    best = " / ".join
    return [
        ("draft: mean 1 - TV on policy samples", "at least .75", f"{figures.draft_overlap:.3f}"),
        *_reward_rows("prm", figures.reward, ("at least .95", "at least .80")),
        *_reward_rows("prm-small", figures.reward_small, ("", "")),
        ("prm-overfit step AUROC, arithmetic, all steps", "", str(hacking.step_auroc_prm_overfit)),
        (
            f"arithmetic best-of-1 / 4 / 16 / 64 by prm ({hacking.num_problems} problems)",
            "",
            best(f"{value:.3f}" for value in hacking.by_prm.values()),
        ),
        ("the same by prm-overfit", "", best(f"{value:.3f}" for value in hacking.by_prm_overfit.values())),
    ]


def _reward_rows(name: str, reward: RewardFigures | None, wanted: tuple[str, str]) -> list[Row]:
    if reward is None:
        return []
    return [
        (f"{name} step AUROC, two numbers left", wanted[0], str(reward.countdown_two_left)),
        ("the same, legal branches only", "", str(reward.countdown_two_left_legal)),
        (f"{name} step AUROC, three numbers left", wanted[1], str(reward.countdown_three_left)),
        ("the same, legal branches only", "", str(reward.countdown_three_left_legal)),
        (f"{name} step AUROC, arithmetic, non-final steps", "", str(reward.arithmetic)),
    ]
