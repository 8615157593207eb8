"""The loaded native library, or the one log line that says why there is none."""

import ctypes
import functools
import os
from ctypes import c_float, c_int32, c_int64, c_void_p

import structlog

from .build import BuildError, built_library

log = structlog.get_logger(__name__)

SWITCH = "BRANCHWISE_NATIVE"
"""Environment variable: 0 keeps the torch path, 1 makes a failed build an error; unset, a failed build falls
back."""

_SIGNATURES = {
    "branchwise_attend": (c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_int64),
    "branchwise_norm": (c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_float, c_int32, c_int32),
    "branchwise_gate": (c_void_p, c_void_p, c_int32, c_int32, c_int32, c_int32),
    "branchwise_rotate": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int32),
    "branchwise_store": (c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, c_int32),
    "branchwise_draw": (c_void_p,),
    "branchwise_normalise": (c_void_p, c_void_p, c_int32, c_int64, c_int32),
    "branchwise_multiply": (c_void_p,),
}


def library() -> ctypes.CDLL | None:
    """The native operators, None where the torch path serves. Raises `BuildError` if the switch demands
    them, or says something else."""
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise BuildError(f"{SWITCH} is {switch!r}: set it to 0 or 1, or leave it out")
    if switch == "0":
        return None
    found = _load()
    if isinstance(found, BuildError):
        if switch == "1":
            raise BuildError(f"{SWITCH}=1 demands native operators, and there are none: {found}")
        return None
    return found


@functools.cache
def _load() -> ctypes.CDLL | BuildError:
    """Tried once per process."""
    try:
        path = built_library()
        loaded = ctypes.CDLL(str(path))
        for name, arguments in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = arguments, None
        loaded.branchwise_bfloat_unit.restype = c_int32
    except (BuildError, OSError, AttributeError) as error:
        log.warning("native operators are off, torch computes instead: slower", reason=str(error))
        return error if isinstance(error, BuildError) else BuildError(str(error))
    log.debug("native operators loaded", path=str(path))
    return loaded
