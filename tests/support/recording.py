"""A stand-in for CUDA graphs: repeats work and holds it to what a graph would need."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

T = TypeVar("T")

_WAITS = {"aten._local_scalar_dense", "aten.nonzero", "aten.lift_fresh", "aten.equal", "aten.masked_select"}
"""Operations whose result the host must see, or that bring a value of the host along."""


class NotStatic(AssertionError):
    """The work does what a recording cannot repeat."""


class _Watch(TorchDispatchMode):
    """Notes the addresses of all tensors that the work reads or writes and did not make itself."""

    def __init__(self) -> None:
        super().__init__()
        self._made: set[int] = set()
        self._kept: list[Tensor] = []
        self.addresses: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).rpartition(".")[0]
        masks = name.startswith("aten.index") and any(one.dtype == torch.bool for one in _tensors(args[1:2]))
        if name in _WAITS or masks:
            raise NotStatic(f"{name} makes the host wait for the device, or copies from it")
        self.see(name, (args, kwargs))
        given = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        fresh = [tensor for tensor in _tensors(result) if _storage(tensor) not in given]
        self._made.update(map(_storage, fresh))
        self._kept += fresh  # freed memory that is used again would look like the first
        return result

    def see(self, name: str, values: Any) -> None:
        """Note what is not the work's own among the tensors in `values`."""
        self.addresses += [
            (name, tensor.data_ptr()) for tensor in _tensors(values) if _storage(tensor) not in self._made
        ]


class FakeRecorder:
    """Implements `Recorder`: a replay runs the work again, which must read and write outside of itself what
    it did when it was recorded, at the same addresses and in the same order; its results go to the memory of
    the first ones, as a graph's do."""

    def __init__(self) -> None:
        self.recorded = 0
        self.replayed = 0

    def record(self, work: Callable[[], T]) -> Callable[[], T]:
        work()
        result, first = _watched(work)
        self.recorded += 1

        def replay() -> T:
            again, found = _watched(work)
            for (name, before), (_, now) in zip(first, found, strict=False):
                if before != now:
                    raise NotStatic(f"{name} uses a tensor that was elsewhere when the work was recorded")
            if len(first) != len(found):
                raise NotStatic(f"{len(found)} uses of outer tensors, {len(first)} when it was recorded")
            _copy_into(result, again)
            self.replayed += 1
            return result

        return replay


def _watched(work: Callable[[], T]) -> tuple[T, list[tuple[str, int]]]:
    watch = _Watch()
    with watch, _watched_kernels(watch):
        return work(), watch.addresses


@contextlib.contextmanager
def _watched_kernels(watch: _Watch) -> Iterator[None]:
    """Also see what Triton's interpreter is given: torch does not."""
    try:
        from triton.runtime import interpreter
    except ImportError:
        yield
        return
    executor: Any = interpreter.GridExecutor
    call = executor.__call__

    def seen(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.see(f"kernel {self.fn.__name__}", (args, kwargs))
        with _disable_current_modes():
            return call(self, *args, **kwargs)

    executor.__call__ = seen
    try:
        yield
    finally:
        executor.__call__ = call


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.numel()]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _copy_into(first: Any, again: Any) -> None:
    for target, source in zip(_tensors(first), _tensors(again), strict=True):
        if target.data_ptr() != source.data_ptr():
            target.copy_(source)
