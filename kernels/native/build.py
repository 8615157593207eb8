"""Builds the native operators with the machine's own C++ compiler, once per machine and source.

The library lies in the user's cache folder under a digest of everything that it depends on: the sources, the
compiler and its flags, and the processor. A build writes a temporary file and renames it, so that processes
that build at the same time do no harm.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

SOURCES = ("attention.cpp", "elementwise.cpp", "product.cpp", "sampling.cpp", "team.cpp")
HEADERS = ("groups.h", "lanes.h", "products.h", "team.h")
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-pthread", "-fPIC", "-shared", "-Wno-psabi")
"""Multiply and add are fused where the source says so and nowhere else: a compiler that chooses gives a row
other bits in another shape."""
MARCH = "BRANCHWISE_NATIVE_MARCH"
"""Environment variable: the processor to build for, in the compiler's names; unset, the machine's own."""
COMPILERS = ("g++", "clang++")
_FOLDER = Path(__file__).parent
_LONGEST_BUILD = 180
"""Seconds after which a build counts as failed."""


class BuildError(Exception):
    """Why there is no native library, in one line."""


def built_library() -> Path:
    """The path of the library, which is built if it is not there yet. Raises `BuildError`."""
    compiler = find_compiler()
    try:
        path = cache_folder() / f"operators-{_digest(compiler)}.so"
        if not (path.is_file() and path.stat().st_size):  # a crash of the machine may leave an empty one
            _compile(compiler, path)
    except OSError as error:
        raise BuildError(str(error)) from None
    return path


def find_compiler() -> str:
    """The compiler that `CXX` names, else the first known one. Raises `BuildError`."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise BuildError(f"no C++ compiler ({wanted or ' or '.join(COMPILERS)})")


def cache_folder() -> Path:
    """Where built libraries lie: private to the user, never inside the package. Raises
    `BuildError` where the user has none."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:  # an account without a home
        raise BuildError(f"no cache folder ({error}); set XDG_CACHE_HOME") from None
    return Path(base) / "branchwise" / "native"


def _digest(compiler: str) -> str:
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        digest.update((_FOLDER / name).read_bytes())
    state = Path(compiler).resolve().stat()
    digest.update(repr((compiler, state.st_size, state.st_mtime_ns, _flags(), _processor())).encode())
    return digest.hexdigest()[:24]


def _flags() -> tuple[str, ...]:
    return (*FLAGS, f"-march={os.environ.get(MARCH) or 'native'}")


def _processor() -> str:
    """What `-march=native` sees of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    names = ("model name", "flags", "Features", "CPU part")
    stripped = {key.strip(): value.strip() for key, value in fields.items()}
    return platform.machine() + "".join(stripped.get(name, "") for name in names)


def _compile(compiler: str, path: Path) -> None:
    log.info("building native operators: seconds, once on this machine", compiler=compiler, path=str(path))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    command = [compiler, *_flags(), *(str(_FOLDER / name) for name in SOURCES), "-o", draft]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_BUILD, check=False)
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200])
            raise BuildError(f"{compiler} failed: {first.strip() or f'exit status {done.returncode}'}")
        if not Path(draft).stat().st_size:
            raise BuildError(f"{compiler} made nothing")
        os.replace(draft, path)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{compiler} took more than {_LONGEST_BUILD} s") from None
    finally:
        Path(draft).unlink(missing_ok=True)
