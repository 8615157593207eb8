"""No claim of a GGUF header costs more memory than the file has bytes for."""

import struct
import tracemalloc
from pathlib import Path

import gguf
import pytest
from branchwise.engine.errors import ModelLoadError
from branchwise.engine.models.gguf import dequantised_bytes, open_gguf
from branchwise.engine.models.gguf_header import MAX_ARRAY_ELEMENTS, check_header
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ggml import write_gguf
from support.tiny import save_model

STRING, ARRAY, UINT8, UINT32 = 8, 9, 0, 4
HUGE = [2**20, 2**31, 2**32 - 1, 2**40, 2**56, 2**62, 2**64 - 1]


def header(*parts: bytes, version: int = 3, tensors: int = 0, fields: int = 1, order: str = "<") -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, fields) + b"".join(parts)


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IIQ", ARRAY, kind, count) + body


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize(
    "claim",
    [
        lambda n: header(text(b"a"), array(UINT8, n)),
        lambda n: header(text(b"a"), array(UINT32, n)),
        lambda n: header(text(b"a"), array(STRING, n)),
        lambda n: header(text(b"a"), struct.pack("<I", STRING), text(b"b", n)),
        lambda n: header(text(b"a", n)),
        lambda n: header(fields=n),
        lambda n: header(tensors=n, fields=0),
        lambda n: header(text(b"a"), array(ARRAY, n)),
        lambda n: header(text(b"t"), struct.pack("<I", n % 2**32), tensors=1, fields=0),
    ],
    ids=["bytes", "numbers", "strings", "string", "name", "fields", "tensors", "arrays", "dimensions"],
)
def test_a_claim_beyond_the_file_is_refused(claim, count: int, tmp_path: Path) -> None:
    path = tmp_path / "claims.gguf"
    path.write_bytes(claim(count))
    line = r"claims\.gguf is no GGUF file, or is cut short \(\d+ bytes: .+\)$"
    with pytest.raises(ModelLoadError, match=line):
        dequantised_bytes(open_gguf(path))


def test_more_array_elements_than_any_vocabulary_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    count = MAX_ARRAY_ELEMENTS // 2 + 1
    bodies = [part for name in (b"a", b"b") for part in (text(name), array(UINT8, count, bytes(count)))]
    path.write_bytes(header(*bodies, fields=2))
    line = rf"^b has {count} elements; all arrays may have {MAX_ARRAY_ELEMENTS}$"
    with pytest.raises(ValueError, match=line):
        check_header(path)


@pytest.mark.parametrize("endianess", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_all_that_the_format_has_is_let_through(endianess: gguf.GGUFEndian, tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=endianess)
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{name}")(name, 7)
    writer.add_float32("f", 1.0)
    writer.add_float64("d", 1.0)
    writer.add_bool("b", True)
    writer.add_array("texts", ["a", "", "äö"])
    writer.add_array("numbers", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check_header(path)
    assert dequantised_bytes(open_gguf(path)) == 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    base = tmp_path_factory.mktemp("whole")
    save_model(base / "model", "Llama", num_hidden_layers=1)
    write_gguf(base / "model", base / "model.gguf")
    return (base / "model.gguf").read_bytes()


def test_a_large_number_anywhere_in_the_header_takes_no_more_memory(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"

    @settings(max_examples=60, deadline=None)
    @given(place=st.integers(4, 12_000), value=st.sampled_from(HUGE), size=st.sampled_from([4, 8]))
    def damage(place: int, value: int, size: int) -> None:
        written = value.to_bytes(8, "little")[:size]
        path.write_bytes(whole[:place] + written + whole[place + size :])
        tracemalloc.start()
        try:
            dequantised_bytes(open_gguf(path))
        except ModelLoadError:
            ...
        finally:
            _, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak_bytes < 300 * len(whole)

    damage()
