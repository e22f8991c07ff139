"""The safetensors format: read and written as by its own library, and nothing but errors from what is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import numpy_dtype
from staticgrad.runtime.files import tensorfile

RNG = np.random.default_rng(0)
VALUES = {
    name: RNG.integers(0, 2, shape).astype(numpy_dtype(name))
    for name, shape in zip(tensorfile.DTYPES.values(), [(3,), (), (2, 3), (0, 4), (1,)] * 3, strict=False)
}
NOTES = {"format": "anything", "emphasis": "é \u2603"}


def test_files_are_what_the_format_s_own_library_reads(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    path = tmp_path / "file"
    path.write_bytes(tensorfile.to_bytes(VALUES, NOTES))
    with library.safe_open(path, framework="numpy") as file:
        assert file.metadata() == NOTES
        for name, value in VALUES.items():
            np.testing.assert_array_equal(file.get_tensor(name), value, strict=True)


def test_files_of_the_format_s_own_library_are_read(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    library.save_file(VALUES, tmp_path / "file", NOTES)
    values, notes = tensorfile.read(tmp_path / "file")
    assert notes == NOTES
    assert values.keys() == VALUES.keys()
    for name, value in VALUES.items():
        np.testing.assert_array_equal(values[name], value, strict=True)
    entries, _ = tensorfile.headers(tmp_path / "file")
    assert [(e.name, e.shape, e.nbytes) for e in entries] == [(n, v.shape, v.nbytes) for n, v in sorted(VALUES.items())]


def file_of(header: Any, data: bytes = b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def described(**changed: Any) -> bytes:
    return file_of({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changed})


WRONG = {
    "empty": b"",
    "short": b"\1\0\0",
    "a header longer than the file": (100).to_bytes(8, "little") + b"{}",
    "a header longer than memory": (2**63).to_bytes(8, "little") + b"{}",
    "no JSON": file_of(b"{"),
    "no text": file_of(b"\xff\xfe"),
    "no object": file_of([1, 2]),
    "nothing": file_of(None),
    "nested without end": file_of(b"[" * 100_000),
    "a name twice": file_of(b'{"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}, "a": 1}'),
    "notes that are no texts": file_of({"__metadata__": {"a": 1}}, b""),
    "notes that are no object": file_of({"__metadata__": "text"}, b""),
    "an entry that is no object": file_of({"x": 1}),
    "an entry with more": described(more=1),
    "an unknown dtype": described(dtype="F31"),
    "a dtype that is no text": described(dtype=["F32"]),
    "a negative size": described(shape=[-2]),
    "a size that is no number": described(shape=["2"]),
    "a size that is a truth value": described(shape=[True, 2]),
    "a size beyond all memory": described(shape=[2**63]),
    "a shape that is a number": described(shape=2),
    "another size": described(shape=[3]),
    "offsets that do not fit": described(data_offsets=[0, 4]),
    "offsets backwards": described(data_offsets=[8, 0]),
    "a gap": described(data_offsets=[4, 12]),
    "three offsets": described(data_offsets=[0, 4, 8]),
    "data that nothing describes": file_of({}),
    "less data than described": file_of({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}),
    "data described twice": file_of(
        {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in ("x", "y")}
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_damaged_file_is_refused(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(WRONG[what])
    for function in (tensorfile.read, tensorfile.headers):
        with pytest.raises(sg.FormatError, match="no safetensors file, or a damaged one"):
            function(tmp_path / "file")


def test_elements_without_a_dtype_are_listed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(described(dtype="F8_E4M3", shape=[8]))
    ((entry,), _) = tensorfile.headers(tmp_path / "file")
    assert (entry.dtype, entry.nbytes) == ("F8_E4M3", 8)
    with pytest.raises(sg.FormatError, match="'x' has the dtype F8_E4M3"):
        tensorfile.read(tmp_path / "file")


def test_drawn_damage_gives_errors_and_nothing_else(tmp_path: Path) -> None:
    whole = tensorfile.to_bytes({"w": np.ones((2, 3), np.float32), "b": np.zeros(5)}, NOTES)
    refused = 0
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(int(RNG.integers(1, 4))):
            at = int(RNG.integers(0, len(data)))
            match RNG.integers(0, 4):
                case 0:
                    data[at] = int(RNG.integers(0, 256))
                case 1:
                    del data[at : at + int(RNG.integers(1, 9))]
                case 2:
                    data[at:at] = RNG.bytes(int(RNG.integers(1, 9)))
                case _:
                    data[at : at + 1] = b"0123456789{}[],"[int(RNG.integers(0, 15)) :][:1]
        (tmp_path / "file").write_bytes(data)
        try:
            tensorfile.read(tmp_path / "file")
        except sg.FormatError:
            refused += 1
    assert refused > 1500
