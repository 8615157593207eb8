"""Compiles every Triton kernel for GPUs that need not be there, and holds what comes out against what the
kernel's builds ask for.

Numeric tests in the interpreter see neither registers nor the memory pipeline: a kernel that spills, or whose
loads have lost their asynchronous form, passes them all and is slow. Kernels are made for the interpreter or
for a GPU when their module is imported, so all of them are imported in processes of the check's own, without
TRITON_INTERPRET and with a cache folder of their own.
"""

import importlib
import importlib.util
import multiprocessing
import os
import pkgutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from .machine_code import MachineCode, read_machine_code

if TYPE_CHECKING:
    from .gpu.build import Build

ARCHITECTURES = (80, 90, 100)
"""Compute capabilities that builds may name."""

KERNELS = f"{__package__}.gpu"
"""The package whose modules are searched for kernels."""

_WORKERS = 2
_TOOLS = ("cuobjdump", "nvdisasm")


class CheckImpossible(Exception):
    """Nothing can be compiled here: what is missing, in one line."""


class Listed(msgspec.Struct, frozen=True):
    """What a search found: the module, the name and the architectures of each build, and faults."""

    builds: list[tuple[str, str, list[int]]]
    faults: list[str]


class Checked(msgspec.Struct, frozen=True):
    """One build for one architecture; `code` is None where it did not compile."""

    name: str
    architecture: int
    code: MachineCode | None
    faults: list[str]


class Report(msgspec.Struct, frozen=True):
    """All builds, in the order of modules, what is wrong with modules themselves, and `remarks` on builds for
    an architecture that neither they nor the caller name."""

    checked: list[Checked]
    faults: list[str]
    remarks: list[str] = []

    def all_faults(self) -> list[str]:
        """One line each."""
        return [*self.faults, *(fault for each in self.checked for fault in each.faults)]

    def summary(self) -> str:
        """One line; names what is wrong only by its count."""
        count = len({each.name for each in self.checked})
        doubtful = {remark.partition(":")[0].rpartition(" ")[2] for remark in self.remarks}
        found = {f"sm_{each.architecture}" for each in self.checked} - doubtful
        names = ", ".join(sorted(found, key=lambda name: int(name[3:])))
        what = f"{count} build{'s' * (count != 1)} for {names or 'no architecture'}"
        faults = len(self.all_faults())
        told = f"; {len(self.remarks)} remark{'s' * (len(self.remarks) != 1)}" if self.remarks else ""
        return f"{what}: {f'{faults} fault' + 's' * (faults != 1) if faults else 'no spills'}{told}"


def run_check(
    only: str | None = None,
    architectures: Sequence[int] = (),
    *,
    package: str = KERNELS,
    show: Callable[[Checked], None] = lambda checked: None,
) -> Report:
    """Compile the builds of the modules of `package` whose names contain `only`, for the architectures that
    they name, or those of them in `architectures`. Builds for 90 that do not name 100 are compiled for it
    too: what is wrong there is a fault where `architectures` has it, else a remark. `show` gets each one when
    it and all before it are done. Raises CheckImpossible where Triton or its programs are missing, or nothing
    is chosen."""
    find_tools()
    with tempfile.TemporaryDirectory(prefix="kernels-check-") as cache, _pool(cache) as pool:
        try:
            listed = pool.submit(list_builds, package).result()
        except BrokenProcessPool:
            return Report([], [f"{package}: importing its modules ended the process"])
        chosen = [
            (module, name, architecture)
            for module, name, named in listed.builds
            if only is None or only in name
            for architecture in _asked(named, architectures)
        ]
        if not chosen and not listed.faults:
            raise CheckImpossible(_nothing(listed, only, architectures))
        checked: list[Checked] = []
        remarks: list[str] = []
        expected = {(name, each) for _, name, named in listed.builds for each in (*named, *architectures)}
        running = [pool.submit(check_build, *one) for one in chosen]
        for future, (_, name, architecture) in zip(running, chosen, strict=True):
            try:
                found = future.result()
            except BrokenProcessPool:
                lost = f"{name} sm_{architecture}: compiling it, or the build beside it, ended the process"
                return Report(checked, [*listed.faults, lost])
            if (name, architecture) not in expected:
                remarks += found.faults
                found = msgspec.structs.replace(found, faults=[])
            checked.append(found)
            show(found)
    return Report(checked, listed.faults, remarks)


def _nothing(listed: Listed, only: str | None, architectures: Sequence[int]) -> str:
    if only is not None and not any(only in name for _, name, _ in listed.builds):
        return f"no build's name contains {only!r}"
    return f"no such build names {', '.join(f'sm_{each}' for each in architectures) or 'an architecture'}"


def find_tools() -> Path:
    """The folder of the programs that come with Triton."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        raise CheckImpossible("triton is not installed: the extra branchwise[gpu] brings it")
    tools = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    missing = [name for name in _TOOLS if not os.access(tools / name, os.X_OK)]
    if missing:
        raise CheckImpossible(f"this installation of triton lacks {' and '.join(missing)} (in {tools})")
    return tools


def _asked(named: Sequence[int], architectures: Sequence[int]) -> Sequence[int]:
    possible = [*named, *([100] if 90 in named and 100 not in named else [])]
    return [each for each in architectures or possible if each in possible]


def _pool(cache: str) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(_WORKERS, mp_context=context, initializer=_prepare, initargs=(cache,))


def _prepare(cache: str) -> None:
    """Runs in each process before Triton is imported there."""
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = cache


def list_builds(package: str) -> Listed:
    """Import every module of `package`. A fault is: a module that does not import, a name or an architecture
    that cannot be, and a kernel that no build compiles, be it by itself or inside another."""
    modules, faults = _import_all(package)
    builds = [(module, build) for module in modules for build in _builds(module)]
    names = Counter(build.name for _, build in builds)
    faults += [f"{name}: {count} builds have this name" for name, count in names.items() if count > 1]
    for _, build in builds:
        if not build.ceilings or set(build.ceilings) - set(ARCHITECTURES):
            faults.append(f"{build.name}: it must have ceilings, for some of {ARCHITECTURES}")
    reached = _reached(build.kernel for _, build in builds)
    for module in modules:
        for name, kernel in _kernels(module).items():
            if kernel not in reached:
                faults.append(f"{module.__name__}.{name}: no build compiles this kernel")
    found = [(module.__name__, build.name, sorted(build.ceilings)) for module, build in builds]
    return Listed([each for each in found if not set(each[2]) - set(ARCHITECTURES)], faults)


def _import_all(package: str) -> tuple[list[ModuleType], list[str]]:
    modules, faults = [], []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        try:
            modules.append(importlib.import_module(info.name))
        except Exception as error:
            faults.append(f"{info.name}: it does not import: {_one_line(error)}")
    return modules, faults


def _builds(module: ModuleType) -> "list[Build]":
    return module.builds() if hasattr(module, "builds") else []


def _kernels(module: ModuleType) -> dict[str, Any]:
    """The functions for a GPU that `module` itself defines."""
    from triton.runtime.jit import JITFunction

    found = {name: _bare(value) for name, value in vars(module).items()}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, JITFunction) and value.fn.__module__ == module.__name__
    }


def _bare(kernel: Any) -> Any:
    """The kernel inside heuristics or an autotuner."""
    from triton.runtime.jit import JITFunction, KernelInterface

    while isinstance(kernel, KernelInterface) and not isinstance(kernel, JITFunction):
        kernel = getattr(kernel, "fn", None)
    return kernel


def _reached(kernels: Iterable[Any]) -> set[Any]:
    """The kernels and all that they call, found by the names in their code."""
    from triton.runtime.jit import JITFunction

    reached: set[Any] = set()
    waiting = [_bare(kernel) for kernel in kernels]
    while waiting:
        kernel = waiting.pop()
        if not isinstance(kernel, JITFunction) or kernel in reached:
            continue
        reached.add(kernel)
        function = kernel.fn
        named = [function.__globals__.get(name) for name in function.__code__.co_names]
        inside = [
            getattr(module, name, None)
            for module in named
            if isinstance(module, ModuleType)
            for name in function.__code__.co_names
        ]
        waiting += [*named, *inside]
    return reached


def check_build(module: str, name: str, architecture: int) -> Checked:
    """Compile one build and compare."""
    build = next(each for each in _builds(importlib.import_module(module)) if each.name == name)
    try:
        code = compile_build(build, architecture)
    except Exception as error:
        fault = f"{name} sm_{architecture}: it does not compile: {_one_line(error)}"
        return Checked(name, architecture, None, [fault])
    return Checked(name, architecture, code, find_faults(build, architecture, code))


def compile_build(build: "Build", architecture: int) -> MachineCode:
    """Compile for a GPU of `architecture`; no driver is touched. Raises what Triton does."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = _bare(build.kernel)
    names = kernel.arg_names
    given = {*build.signature, *build.constants}
    if given != set(names):
        raise ValueError(f"arguments {sorted(given ^ set(names))} are the build's or the kernel's only")
    signature = {name: build.signature.get(name, "constexpr") for name in names}
    aligned = {*build.divisible, *(name for name in names if signature[name].startswith("*"))}
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs=dict(build.constants),
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    options = {"num_warps": build.warps, "num_stages": build.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        return read_machine_code(Path(file.name), compiled.metadata.shared, build.warps, find_tools())


def find_faults(build: "Build", architecture: int, code: MachineCode) -> list[str]:
    """What `code`, compiled from `build`, lacks; one line each."""
    faults = []
    if code.spills:
        faults.append(
            f"it spills: {code.stack_bytes} bytes of stack, {code.local_bytes} local, "
            f"{code.local_loads} loads and {code.local_stores} stores"
        )
    if build.wants_async:
        if not (code.wide_async_loads or code.bulk_loads):
            faults.append("no load is asynchronous with 128 bits or TMA")
        narrow = code.async_loads - code.wide_async_loads
        if narrow > build.narrow_async:
            faults.append(
                f"{narrow} asynchronous loads are narrower than 128 bits, over {build.narrow_async}"
            )
    if build.wants_hgmma and architecture == 90 and not code.warp_group_products:
        faults.append("it has no warp-group products (HGMMA)")
    ceiling = build.ceilings.get(architecture)
    if ceiling is not None:
        if code.registers > ceiling.registers:
            faults.append(f"{code.registers} registers, over its ceiling of {ceiling.registers}")
        if code.shared_bytes > ceiling.shared_bytes:
            over = f"{code.shared_bytes} bytes of shared memory, over its ceiling of {ceiling.shared_bytes}"
            faults.append(over)
    return [f"{build.name} sm_{architecture}: {fault}" for fault in faults]


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason given'}"
