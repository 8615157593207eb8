"""`branchwise eval` and `branchwise summary`: recipes, and bad input in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from branchwise.evals.calibration.command import calibrate
from branchwise.evals.runs.command import evaluate
from branchwise.evals.runs.machine import Machine
from branchwise.evals.runs.recipe import Recipe, checked_recipe, read_recipe
from branchwise.reasoning.cli.requests import Asking, Opening, Searching
from branchwise.reasoning.cli.solve import solve
from branchwise.serve.command import serve
from cli.command_line import Branchwise, refused
from cli.conftest import branchwise as _branchwise
from support.evaluating import reproducible, write_chains

branchwise = _branchwise


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((), ("no suite given",)),
        (("countdown",), ("no strategy given", "--strategy")),
        (("nosuch", "--strategy", "greedy"), ("nosuch", "countdown")),
        (("countdown", "--strategy", "greddy"), ("greddy", "greedy")),
        (("countdown", "--strategy", "best_of_n(n=8..4*2)"), ("8..4*2", "upwards")),
        (("countdown", "--strategy", "greedy", "--budget", "tokens=many"), ("tokens=many",)),
        (("countdown", "--strategy", "greedy", "--seeds", "0"), ("--seeds 0", "1 to 10000")),
        (("countdown", "--strategy", "greedy", "--limit", "x"), ("--limit x",)),
        (("countdown", "--strategy", "greedy", "--difficulty", "4"), ("difficulty=4", "16")),
        (("countdown", "--strategy", "greedy", "--verifier", "nosuch"), ("nosuch",)),
        (("countdown", "--strategy", "greedy", "--model", "/none"), ("/none",)),
        (("countdown", "--strategy", "greedy", "--draft", "/none"), ("/none",)),
        (("countdown", "--strategy", "greedy", "--prm", "/none"), ("/none",)),
        (("countdown", "--strategy", "greedy", "--device", "gpu9"), ("gpu9",)),
        (("countdown", "--strategy", "greedy", "--parallel", "0"), ("--parallel 0",)),
        (("countdown", "--replay", "x", "--strategy", "greedy"), ("brings its own problems",)),
        (("--replay", "/none.jsonl", "--strategy", "greedy"), ("/none.jsonl", "No such file")),
        (("countdown", "--strategy", "best_of_n(n=4..)"), ("sweep 4..", "4..64*2")),
        (("countdown", "--strategy", "best_of_n(n=1..1e9)"), ("sweep 1..1e9", "whole numbers")),
        (("countdown", "--strategy", "best_of_n(n=4,,8)"), ("n=4,,8", "an empty value")),
        (("countdown", "--strategy", "greedy", "--budget", "tokens=1e99"), ("1e+99", "leave tokens out")),
        (("countdown", "--strategy", "greedy", "--data", "/x"), ("reads no --data",)),
        (
            ("--replay", "x", "--strategy", "greedy", "--temperature", "0.3"),
            ("temperature=0.3", "runs no model"),
        ),
        (
            ("--replay", "x", "--strategy", "greedy", "--verifier", "code"),
            ("verifier='code'", "leave it out"),
        ),
        (("countdown", "--filter", "x", "--strategy", "greedy"), ("--filter x", "give --replay PATH")),
        (("--recipe", "/none.toml"), ("/none.toml", "No such file")),
        (("countdown", "--recipe", "/none.toml"), ("given together with SUITE",)),
        # What is written out is given, though it is what would be taken anyway.
        (("--recipe", "/none.toml", "--seeds", "1"), ("given together with --seeds",)),
        (("--recipe", "/none.toml", "--model", "reference"), ("given together with --model",)),
    ],
)
def test_bad_input_is_refused_in_one_line(
    branchwise: Branchwise, tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(branchwise("eval", *arguments, "--out", str(tmp_path / "run")), *parts)


def test_a_strategy_that_no_sample_can_run_ends_the_run_at_once(
    branchwise: Branchwise, tmp_path: Path
) -> None:
    chains = write_chains(tmp_path / "chains.json")
    ran = branchwise("eval", "--replay", str(chains), "--strategy", "greedy", "--out", str(tmp_path / "run"))
    assert ran.status == 2
    assert "the strategy samples at temperature 0" in ran.err.splitlines()[-1]
    again = branchwise(
        "eval", "--replay", str(chains), "--strategy", "best_of_n(n=2)", "--out", str(tmp_path / "run")
    )
    assert again.status == 0, again.err


@pytest.mark.parametrize("command", [evaluate, calibrate, serve])
def test_models_and_searches_are_asked_for_by_the_options_of_solve(command: Callable[..., None]) -> None:
    names = {*Opening.__struct_fields__, *Asking.__struct_fields__} - {"strategy", "budget", "seed"}
    ours, theirs = (get_type_hints(each, include_extras=True) for each in (command, solve))
    if command is serve:  # where a request says the rest
        names -= set(Searching.__struct_fields__) - {"verifier", "step", "speculate"}
    for name in names:
        (option,) = ours[name].__metadata__
        assert theirs[name].__metadata__ == (option,), name  # the one declaration of it


def test_a_run_opens_what_its_recipe_names_on_the_machine_that_its_options_name() -> None:
    asked = {name: f"the {name}" for name in Opening.__struct_fields__}
    machine = Machine.of(Opening(**asked), parallel=1)  # pyright: ignore[reportArgumentType]
    decides = {name: asked[name] for name in Recipe.__struct_fields__ if name in asked}
    recipe = Recipe(suite="s", strategies=("greedy",), **decides)  # pyright: ignore[reportArgumentType]
    assert msgspec.structs.asdict(machine.opening(recipe)) == asked


def test_a_filter_of_lm_eval_decides_what_was_right(branchwise: Branchwise, tmp_path: Path) -> None:
    file = tmp_path / "samples_sums.jsonl"
    shared = {"doc_id": 0, "doc": {"question": "2 + 2?"}, "target": "4", "resps": [["four, 4"]]}
    graded = {"strict-match": 0.0, "flexible-extract": 1.0}
    file.write_text("\n".join(json.dumps({**shared, "filter": f, "acc": acc}) for f, acc in graded.items()))
    replay = ("eval", "--replay", str(file), "--strategy", "best_of_n(n=1)")
    refused(branchwise(*replay, "--out", str(tmp_path / "none")), "strict-match, flexible-extract")
    for name, accuracy in graded.items():
        ran = branchwise(*replay, "--filter", name, "--out", str(tmp_path / name))
        assert ran.status == 0, ran.err
        assert f"accuracy {accuracy:.1%}" in ran.err


RECIPE = """
suite = "chains"
recording = "{chains}"
strategies = ["best_of_n(n=2,4)"]
budget = "tokens=300"
seeds = 2
limit = 5
"""


def test_a_recipe_file_does_what_the_options_do(branchwise: Branchwise, tmp_path: Path) -> None:
    chains = write_chains(tmp_path / "chains.json")
    file = tmp_path / "row.toml"
    file.write_text(RECIPE.format(chains=chains))
    options = ("--strategy", "best_of_n(n=2,4)", "--budget", "tokens=300", "--seeds", "2", "--limit", "5")
    first = branchwise("eval", "--recipe", str(file), "--out", str(tmp_path / "a"))
    second = branchwise("eval", "--replay", str(chains), *options, "--out", str(tmp_path / "b"))
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert reproducible(tmp_path / "a") == reproducible(tmp_path / "b")
    assert "5 problems x 2 strategies x 1 budgets x 2 seeds: 20 samples" in first.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("suite = 3", "Expected `str`"),
        ('suite = "a"', "missing required field"),
        ('suite = "a"\nstrategies = ["greedy"]\nsedes = 3', "'sedes': not known; did you mean seeds"),
        ('suite = "a"\nstrategy = "greedy"\nstrategies = ["greedy"]', "has strategy and strategies"),
        ('suite = "a"\nstrategies = "greedy"', "Expected `array`"),
        ('suite = "a"\nstrategies = [1]', "Expected `str`"),
        ('suite = "a"\nstrategy = "greedy"\ntemperature = nan', "temperature"),
        ("", "missing required field `suite`"),
        ('recipe = "row.toml"', "'recipe': not known"),
        ('suite = "a"\nstrategies = ["greedy"]\nseeds = 0', "seeds"),
        ("suite = ", "cannot be read"),
    ],
)
def test_a_bad_recipe_is_refused_in_one_line(
    branchwise: Branchwise, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "row.toml"
    file.write_text(text)
    refused(branchwise("eval", "--recipe", str(file), "--out", str(tmp_path / "a")), "row.toml", reason)


def test_a_recipe_takes_one_strategy_or_several(tmp_path: Path) -> None:
    file = tmp_path / "row.toml"
    file.write_text('suite = "countdown"\nstrategy = "greedy"\n')
    assert read_recipe(str(file)) == Recipe(suite="countdown", strategies=("greedy",))
    assert checked_recipe(read_recipe(str(file))).budgets == ("tokens=16384",)


def test_a_summary_is_printed_again_from_the_records(branchwise: Branchwise, tmp_path: Path) -> None:
    chains = write_chains(tmp_path / "chains.json")
    branchwise("eval", "--replay", str(chains), "--strategy", "best_of_n(n=2)", "--out", str(tmp_path / "a"))
    printed = branchwise("summary", str(tmp_path / "a"))
    assert printed.out.strip() == (tmp_path / "a" / "summary.md").read_text().strip()
    made = json.loads(branchwise("summary", str(tmp_path / "a"), "--json").out)
    assert made == json.loads((tmp_path / "a" / "summary.json").read_text())


def test_a_folder_without_a_run_has_no_summary(branchwise: Branchwise, tmp_path: Path) -> None:
    refused(branchwise("summary", str(tmp_path)), "holds no run")
    (tmp_path / "records.sqlite").write_text("no database at all, but long enough to be taken for one" * 9)
    refused(branchwise("summary", str(tmp_path)), "is no file of records")
