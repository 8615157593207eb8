"""What every test shares: one torch thread, both event loops, and Hypothesis without deadlines."""

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.browser import Browser

settings.register_profile(
    "branchwise",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("branchwise")

_ROOT = Path(__file__).resolve().parents[1]
# `python -m pytest` puts the working directory first on the path. This one is the package, not a place to
# import from; and `pip install -e` leaves the build's metadata in it, which would go before the installed:
# other packages then find neither where branchwise lies nor what it registers with them.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _ROOT]

_TORCH_THREADS = 1


class _OneTorchThread(importlib.abc.MetaPathFinder):
    """Limits torch to one thread when a test imports it, and does not import it for tests that do without."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            module.set_num_threads(_TORCH_THREADS)

        spec.loader.exec_module = exec_module  # pyright: ignore[reportAttributeAccessIssue]
        return spec


if "torch" in sys.modules:
    sys.modules["torch"].set_num_threads(_TORCH_THREADS)
else:
    sys.meta_path.insert(0, _OneTorchThread())


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Async tests run on both event loops."""
    return request.param


@pytest.fixture(scope="session")
def native() -> ctypes.CDLL:
    """The built native operators; the first use on a machine builds them."""
    from branchwise.kernels.native.library import library

    loaded = library()
    if loaded is None:
        pytest.skip("no native operators here: no compiler, or switched off")
    return loaded


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    """A browser with one page."""
    from support.browser import browser, find_browser

    program = find_browser()
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _unconfigured_logs() -> Iterator[None]:
    """A command or a reasoner that one test runs configures logging; the next test must not inherit it."""
    yield
    structlog.reset_defaults()
