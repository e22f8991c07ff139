"""``load_safetensors``: files, shards, other names, short floats, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staticgrad as sg
from staticgrad.base.types import bfloat16
from staticgrad.runtime.files import tensorfile


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


def values(dtype: Any = np.float32) -> dict[str, Any]:
    return {"weight": np.arange(6).reshape(3, 2).astype(dtype), "bias": np.array([1, 2, 3], dtype)}


def written(path: Path, arrays: dict[str, Any]) -> Path:
    path.write_bytes(tensorfile.to_bytes(arrays, {"format": "pt"}))
    return path


def sharded(folder: Path, arrays: dict[str, Any]) -> Path:
    files = {name: f"model-{n + 1:05}-of-{len(arrays):05}.safetensors" for n, name in enumerate(arrays)}
    for name, file in files.items():
        written(folder / file, {name: arrays[name]})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": files}))
    return index


def loaded(path: Any, **options: Any) -> dict[str, Any]:
    layer, sess = sg.nn.Linear(2, 3), sg.Session()
    assert sg.nn.load_safetensors(layer, sess, path, **options).missing_keys == []
    return layer.state_dict(sess)


def expect(actual: dict[str, Any]) -> None:
    for name, value in values().items():
        assert actual[name].dtype == np.float32
        np.testing.assert_array_equal(actual[name], value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, bfloat16])
def test_floats_of_any_width_become_the_variables(dtype: Any, tmp_path: Path) -> None:
    expect(loaded(written(tmp_path / "w.safetensors", values(dtype))))


def test_shards_are_found_by_their_index_or_folder(tmp_path: Path) -> None:
    index = sharded(tmp_path, values())
    expect(loaded(index))
    expect(loaded(str(tmp_path)))
    index.unlink()
    written(tmp_path / "model.safetensors", values())
    expect(loaded(tmp_path))


def test_names_are_found_behind_a_prefix_and_renamed(tmp_path: Path) -> None:
    arrays = {f"model.fc.{name}": value for name, value in values().items()} | {"head.weight": np.zeros(2)}
    path = written(tmp_path / "w.safetensors", arrays)
    expect(loaded(path, prefix="model.fc."))
    expect(loaded(path, prefix="model.", rename={"fc.weight": "weight", "fc.bias": "bias"}))
    expect(loaded(path, rename=lambda name: name.rpartition(".")[2] if "fc" in name else None))


def test_a_tied_weight_needs_one_value(tmp_path: Path) -> None:
    class Tied(sg.nn.Module):
        def __init__(self) -> None:
            self.table = sg.Variable(np.zeros((2, 2), np.float32))
            self.head = self.table

    net, sess = Tied(), sg.Session()
    table = np.ones((2, 2), np.float32)
    assert sg.nn.load_safetensors(net, sess, written(tmp_path / "w.safetensors", {"table": table})) == ([], [])
    np.testing.assert_array_equal(sess.get(net.head), table)


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    layer, sess = sg.nn.Linear(2, 3), sg.Session()
    before = layer.state_dict(sess)

    def refused(arrays: dict[str, Any], message: str, **options: Any) -> None:
        with pytest.raises(sg.FormatError, match=message):
            sg.nn.load_safetensors(layer, sess, written(tmp_path / "w.safetensors", arrays), **options)
        for name, value in layer.state_dict(sess).items():
            np.testing.assert_array_equal(value, before[name])

    refused({"weight": values()["weight"]}, "missing in the file: 'bias'")
    refused(values() | {"more": np.zeros(1)}, "not in the module: 'more'")
    refused(values() | {"bias": np.zeros(4, np.float32)}, r"'bias': expected float32\[3\], actual float32\[4\]")
    refused(
        values() | {"old": values()["bias"]}, "'bias' and 'old' of .* are both 'bias'|'old'", rename={"old": "bias"}
    )
    rest = sg.nn.load_safetensors(
        layer, sess, written(tmp_path / "w.safetensors", {"bias": values()["bias"], "more": np.zeros(1)}), strict=False
    )
    assert rest == (["weight"], ["more"])


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"weight_map": {}}', '{"weight_map": {"a": "../a.safetensors"}}', '{"weight_map": {"a": 1}}']
)
def test_a_damaged_index_is_refused(text: str, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    with pytest.raises(sg.FormatError, match="no index of safetensors files"):
        sg.nn.load_safetensors(sg.nn.Linear(2, 3), sg.Session(), index)
