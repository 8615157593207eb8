"""What the header of a GGUF file claims, held against the file's size before a reader believes it."""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

MAX_ARRAY_ELEMENTS = 1 << 23
"""Of all arrays of a header together; the largest vocabularies with their merges have about two million."""

_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_MAX_DIMENSIONS = 4


def check_header(path: Path) -> None:
    """Raise `ValueError` for what no GGUF file of this size can hold.

    `gguf.GGUFReader` makes objects for as many array elements as the header claims, also behind the end of
    the file. This walk takes neither memory nor, for numbers, time for them. Layout: the GGUF specification
    of ggml (docs/gguf.md).
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _Header(data).check()


class _Header:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        self._elements = 0
        self._order = "<"

    def check(self) -> None:
        if self._skip(4, "magic") != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        if self._number("I", "version") & 0xFFFF == 0:  # written by a machine of the other byte order
            self._order = ">"
        tensors, fields = self._number("Q", "tensor count"), self._number("Q", "field count")
        for index in self._counted(fields, 13, "fields"):
            name = self._string(f"the name of field {index}")
            self._value(self._number("I", f"the type of {name}"), name)
        for index in self._counted(tensors, 24, "tensors"):
            self._tensor(self._string(f"the name of tensor {index}"))

    def _counted(self, count: int, least_bytes: int, what: str) -> Iterator[int]:
        if count * least_bytes > len(self._data) - self._at:
            raise ValueError(f"{count} {what} in what is left of {len(self._data)} bytes")
        return iter(range(count))

    def _value(self, kind: int, name: str) -> None:
        if kind == _STRING:
            self._string(name)
        elif kind == _ARRAY:
            self._array(name)
        else:
            self._skip(self._scalar_bytes(kind, name), name)

    def _array(self, name: str) -> None:
        kind, count = self._number("I", name), self._number("Q", name)
        self._elements += count
        size = 8 if kind == _STRING else self._scalar_bytes(kind, name)
        if self._elements > MAX_ARRAY_ELEMENTS:
            raise ValueError(f"{name} has {count} elements; all arrays may have {MAX_ARRAY_ELEMENTS}")
        if kind != _STRING:
            self._skip(count * size, name)
            return
        for _ in self._counted(count, size, f"strings of {name}"):
            self._string(name)

    def _scalar_bytes(self, kind: int, name: str) -> int:
        if kind not in _SCALAR_BYTES:
            raise ValueError(f"{name} is of type {kind}, which is none")
        return _SCALAR_BYTES[kind]

    def _tensor(self, name: str) -> None:
        dimensions = self._number("I", f"the dimensions of {name}")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions; at most {_MAX_DIMENSIONS} are possible")
        self._skip(8 * dimensions + 4 + 8, name)

    def _string(self, what: str) -> str:
        return self._skip(self._number("Q", what), what)[:80].decode(errors="replace")

    def _number(self, code: str, what: str) -> int:
        code = self._order + code
        return int(struct.unpack(code, self._skip(struct.calcsize(code), what))[0])

    def _skip(self, size: int, what: str) -> bytes:
        """Go on by `size` bytes; the first of them."""
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"{what} reaches to byte {end} of {len(self._data)}")
        first = self._data[self._at : min(end, self._at + 80)]
        self._at = end
        return first
