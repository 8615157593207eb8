"""Running the command line in this process."""

import pytest
from branchwise.reasoning.cli.main import run
from cli.command_line import Branchwise, Ran


@pytest.fixture
def branchwise(capsys: pytest.CaptureFixture[str]) -> Branchwise:
    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        status = run(arguments)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return call
