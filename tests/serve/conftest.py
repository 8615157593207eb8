"""A server on the reference model for all tests of this folder that need no settings of their own."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.serving import ServerThread


@pytest.fixture(scope="session")
def server() -> "Iterator[ServerThread]":
    """A server that lets any key in."""
    from support.serving import ServerThread, settings_for

    with ServerThread(settings_for()) as thread:
        yield thread
