import ctypes

import pytest
from branchwise.kernels.native.library import library


@pytest.fixture(scope="session")
def native() -> ctypes.CDLL:
    """The built operators; the first use on a machine builds them."""
    loaded = library()
    if loaded is None:
        pytest.skip("no native operators here: no compiler, or switched off")
    return loaded
