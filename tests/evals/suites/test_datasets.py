"""The public data sets: what their golds become, and that canonical answers are right."""

import itertools
import sys
import types
from pathlib import Path

import msgspec
import pytest
from branchwise.engine.errors import CapabilityError, UsageError
from branchwise.evals.suites.base import Sample, Suite, problem_of, read_answer
from branchwise.evals.suites.registry import open_suite, suite_names
from branchwise.verifiers import sandbox as sandbox_module
from branchwise.verifiers.answer_type import AnswerType

SIZES = {"gsm8k": 1319, "math500": 500, "aime24": 30, "amc23": 40, "svamp": 1000, "game24": 1362,
         "humaneval": 164, "mbpp": 500}  # fmt: skip
NUMBERS = ("gsm8k", "math500", "aime24", "amc23", "svamp")


def opened(name: str, data: Path | None) -> Suite:
    return open_suite(name, data, allow_unsandboxed=True)


def golds(suite: Suite) -> list[tuple[AnswerType, str]]:
    return [(sample.gold.type, sample.gold.value) for sample in suite.samples(None, 0)]


def test_the_twins_read_as_the_public_files_do(twin_data: Path):
    assert golds(opened("gsm8k", twin_data)) == [
        (AnswerType.RATIONAL, "42"),
        (AnswerType.RATIONAL, "2,000"),
        (AnswerType.PERCENT, "25"),
        (AnswerType.RATIONAL, "-2"),
    ]
    assert golds(opened("aime24", twin_data)) == [(AnswerType.RATIONAL, "025")]
    assert golds(opened("amc23", twin_data)) == [(AnswerType.RATIONAL, "27")]
    assert golds(opened("svamp", twin_data)) == [(AnswerType.RATIONAL, "4")]
    first, second = opened("math500", twin_data).samples(None, 0)
    assert (first.level, second.level) == ("2", "5")
    assert (first.id, first.meta["subject"]) == ("test/precalculus/1.json", "Precalculus")
    [svamp] = opened("svamp", twin_data).samples(None, 0)
    assert svamp.problem == "There are 8 pens in 2 boxes. How many in each?"


@pytest.mark.parametrize(
    ("name", "place", "right", "wrong"),
    [
        ("gsm8k", 0, ["42", "42.0", "42 eggs", "$42"], ["420", "142", "42%", "x", "2*3*7"]),
        ("gsm8k", 1, ["2000", "2,000 people"], ["2"]),
        ("gsm8k", 2, ["25%", "25", r"25\%"], ["0.25", "1/4"]),
        ("gsm8k", 3, ["-2", "−2"], ["2"]),
        ("math500", 0, ["(3, pi/2)", r"(3,\frac{\pi}{2})"], [r"(\frac{\pi}{2}, 3)", r"\{3, \frac{\pi}{2}\}"]),
        ("math500", 1, [r"1-\sqrt{19}, 1+\sqrt{19}"], [r"1+\sqrt{19}"]),
        ("aime24", 0, ["25", "025"], ["250", "0.25"]),
        ("amc23", 0, ["27", "27.0"], ["2.7"]),
        ("game24", 0, ["4*(1+6-1)", "4*(6*1*1)", r"4 \times (1 + 6 - 1) = 24"], ["24", "4*6*1*1*1"]),
        ("game24", 2, ["8/(3-8/3)", r"\frac{8}{3-\frac{8}{3}}"], ["(3*8)*(8/8)", "8/(3-8//3)"]),
    ],
)  # fmt: skip
def test_answers_are_graded_by_the_golds_type(
    twin_data: Path, name: str, place: int, right: list[str], wrong: list[str]
):
    suite = opened(name, twin_data)
    sample = suite.samples(None, 0)[place]
    assert [suite.grade(sample, answer, "").correct for answer in right] == [True] * len(right)
    assert [suite.grade(sample, answer, "").correct for answer in wrong] == [False] * len(wrong)
    assert suite.grade(sample, None, "no idea").correct is False


@pytest.mark.parametrize("name", sorted(SIZES))
def test_gold_reaches_no_strategy(twin_data: Path, name: str):
    for sample in opened(name, twin_data).samples(None, 0):
        problem = problem_of(sample)
        if problem.task is not None:
            assert (problem.task.prompt(), problem.task.verifier()) == (sample.problem, None)
            assert sample.gold.value not in repr(problem.task)
            problem = msgspec.structs.replace(problem, task=None, system=None)
        assert (problem.id, problem.text, problem.system, problem.task) == (
            sample.id,
            sample.problem,
            None,
            None,
        )
        assert opened(name, twin_data).oracle


def test_data_is_found_by_file_folder_root_and_variable(twin_data: Path, monkeypatch: pytest.MonkeyPatch):
    for place in (twin_data, twin_data / "amc23", twin_data / "amc23" / "test.jsonl"):
        assert len(opened("amc23", place).samples(None, 0)) == 1
    monkeypatch.setenv("BRANCHWISE_DATA", str(twin_data))
    assert len(opened("amc23", None).samples(None, 0)) == 1
    monkeypatch.setenv("BRANCHWISE_DATA", str(twin_data / "nowhere"))
    with pytest.raises(UsageError, match=r"^suite 'amc23': BRANCHWISE_DATA '.*nowhere' holds no amc23/test"):
        opened("amc23", None).samples(None, 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"line 2: not JSON"),
        ("[1]", r"line 2: not a JSON object"),
        ('{"problem": "x"}', r"^amc23-1: no field 'answer'; it has problem"),
    ],
)
def test_a_bad_row_is_one_line_that_says_which(twin_data: Path, row: str, message: str):
    with (twin_data / "amc23/test.jsonl").open("a") as file:
        file.write(row + "\n")
    with pytest.raises(UsageError, match=message) as caught:
        opened("amc23", twin_data).samples(None, 0)
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_and_an_empty_file_are_one_line(twin_data: Path):
    (twin_data / "humaneval/HumanEval.jsonl.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(UsageError, match="cannot be read"):
        opened("humaneval", twin_data).samples(None, 0)
    (twin_data / "amc23/test.jsonl").write_text("")
    with pytest.raises(UsageError, match="holds no rows"):
        opened("amc23", twin_data).samples(None, 0)


def test_without_data_the_hub_is_asked_and_offline_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BRANCHWISE_DATA", raising=False)
    hub = types.ModuleType("datasets")
    asked = []

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, object]]:
        asked.append((name, config, split))
        if name != "openai/gsm8k":
            raise ConnectionError("Couldn't reach the Hub\nlong trace")
        return [{"question": "1+1?", "answer": "#### 2"}]

    monkeypatch.setattr(hub, "load_dataset", load_dataset, raising=False)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert golds(opened("gsm8k", None)) == [(AnswerType.RATIONAL, "2")]
    with pytest.raises(
        UsageError, match=r"^suite 'svamp': .* cannot be had from the Hub \(Couldn't reach"
    ) as caught:
        opened("svamp", None).samples(None, 0)
    assert "--data PATH" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert asked == [("openai/gsm8k", "main", "test"), ("ChilleD/SVAMP", None, "test")]
    with pytest.raises(UsageError, match="is on no Hub; give its files"):
        opened("game24", None).samples(None, 0)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"the Hub needs pip install 'branchwise\[hub\]'"):
        opened("svamp", None).samples(None, 0)


def test_a_limit_draws_by_seed_and_larger_limits_only_add(twin_data: Path):
    suite = opened("gsm8k", twin_data)
    everything = list(suite.samples(None, 0))
    for seed in range(5):
        nested = [list(suite.samples(limit, seed)) for limit in range(5)]
        assert [len(samples) for samples in nested] == [0, 1, 2, 3, 4]
        for few, more in itertools.pairwise(nested):
            assert [sample for sample in more if sample in few] == few
        assert nested[4] == everything
    assert len({suite.samples(1, seed)[0].id for seed in range(20)}) > 1


def test_program_suites_are_refused_at_once_without_a_sandbox(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_module, "sandbox_fault", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(CapabilityError, match="no sandbox: bubblewrap"):
        open_suite("humaneval")
    open_suite("humaneval", allow_unsandboxed=True)


def test_programs_of_the_twins(twin_data: Path):
    humaneval = opened("humaneval", twin_data)
    [sample] = humaneval.samples(None, 0)
    whole = "def add_all(numbers: List[int]) -> int:\n    return sum(numbers)\n"
    right = [sample.meta["reference"], f"Here:\n```python\n{whole}```\nDone.", f"```\n{whole}```"]
    wrong = ["    return 3\n", f"```python\n{whole}", "I cannot.", "", "```python\ndef other(): pass\n```"]
    assert [graded(humaneval, sample, text) for text in right] == [True] * 3
    assert [graded(humaneval, sample, text) for text in wrong] == [False] * 5
    mbpp = opened("mbpp", twin_data)
    [sample] = mbpp.samples(None, 0)
    assert graded(mbpp, sample, f"```python\n{sample.meta['reference']}\n```") is True
    assert graded(mbpp, sample, "```python\ndef sum(a, b):\n    return 3\n```") is False
    assert "assert sum(1, 2) == 3" in sample.problem


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_real_files_have_their_sizes_and_distinct_ids(real_data: Path, name: str):
    samples = opened(name, real_data).samples(None, 0)
    assert len(samples) == len({sample.id for sample in samples}) == SIZES[name]
    assert all(sample.problem.strip() and sample.gold.value.strip() for sample in samples)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_real_gold_equals_itself_and_not_its_neighbour(real_data: Path, name: str):
    suite = opened(name, real_data)
    samples = suite.samples(None, 0)
    assert [s.id for s in samples if suite.grade(s, s.gold.value, "").correct is not True] == []
    boxed = [s for s in samples if suite.grade(s, f"${s.gold.value}$", "").correct is not True]
    assert [s.id for s in boxed] == []
    if name != "math500":
        assert [s.id for s in samples if suite.grade(s, f"1{s.gold.value}", "").correct is not False] == []


def graded(suite: Suite, sample: Sample, text: str) -> bool | None:
    """The grade of a conclusion, read as a search reads it."""
    return suite.grade(sample, read_answer(sample, text), text).correct


def canonical_passes(suite: Suite, samples: list[Sample]) -> dict[str, str]:
    """The ids of samples whose reference solution does not pass, and why."""
    grades = {sample.id: suite.grade(sample, sample.meta["reference"], "") for sample in samples}
    return {identity: grade.reason for identity, grade in grades.items() if grade.correct is not True}


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_some_canonical_programs_pass(real_data: Path, name: str):
    suite = opened(name, real_data)
    assert canonical_passes(suite, list(suite.samples(12, 0))) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_every_canonical_program_passes(real_data: Path, name: str):
    suite = opened(name, real_data)
    assert canonical_passes(suite, list(suite.samples(None, 0))) == {}


def test_every_name_is_listed():
    assert set(SIZES) | {"countdown", "countdown4", "arithmetic"} <= set(suite_names())
    with pytest.raises(UsageError, match=r"^suite 'gsm8': not known; did you mean gsm8k"):
        open_suite("gsm8")
    with pytest.raises(UsageError, match="takes no field map"):
        open_suite("gsm8k", mapping={"question": "q"})
