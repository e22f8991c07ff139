"""Weights from files in the safetensors format, such as those of published models: ``load_safetensors``.

A model is in one file, or in several with an index, ``{"weight_map": {name: file, …}}``. Floats of any width become
those that a module's variables have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import FormatError
from staticgrad.base.types import is_floating
from staticgrad.graph.graph import Tensor
from staticgrad.graph.naming import Unmatched, match
from staticgrad.graph.optable import Array
from staticgrad.nn.module import Module, StateSource
from staticgrad.runtime.files import tensorfile

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
Rename = Mapping[str, str] | Callable[[str], str | None]


@boundary
def load_safetensors(
    module: Module,
    sess: StateSource,
    path: str | os.PathLike[str],
    rename: Rename | None = None,
    prefix: str = "",
    strict: bool = True,
) -> Unmatched:
    """Set a session's values of a module's parameters and buffers from a file, or several, all in one step.

    Args:
        path: a file in the safetensors format, an index (``….json``) of several, or the folder of either, in which
            they have the names ``model.safetensors`` and ``model.safetensors.index.json``.
        rename: the module's name for each name of the file after ``prefix``: a mapping, in which those that stay may be
            left out, or a function, which gives None for what is not wanted.
        prefix: how the names in the file begin, where the module's do not; what begins otherwise is passed over.
        strict: refuse missing and additional names; otherwise they are passed over.

    Returns:
        ``(missing_keys, unexpected_keys)``: names of the module that had no value, and names of values, as renamed,
        that the module does not have. A variable with several names, such as a tied weight, needs a value under one.

    Raises:
        FormatError: a damaged file or index, names or shapes that do not agree, or no name that does.
        OSError: a file cannot be read.

    Whatever is raised, nothing was changed.

    Example:
        >>> import os, tempfile
        >>> layer, sess = sg.nn.Linear(2, 1), sg.Session()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.safetensors")
        ...     sess.save(path, variables=layer)
        ...     sg.nn.load_safetensors(layer, sess, folder)
        Unmatched(missing_keys=[], unexpected_keys=[])
    """
    own = module._state()
    found: dict[str, tuple[str, Array]] = {}
    for file in _files(Path(path)):
        for name, value in tensorfile.read(file)[0].items():
            wanted = _renamed(name, rename, prefix)
            if wanted is None:
                continue
            if wanted in found:
                raise FormatError(f"load_safetensors: {found[wanted][0]!r} and {name!r} of {path} are both {wanted!r}")
            found[wanted] = name, value
    known = {id(own[name]) for name in found if name in own}
    needed = [name for name in own if name in found or id(own[name]) not in known]
    what = f"load_safetensors of {type(module).__name__}"
    rest = match(what, ("file", "module"), needed, found, (not strict, not strict))
    sess.set_all({own[name]: _fitting(own[name], *found[name]) for name in needed if name in found})
    return rest


def _renamed(name: str, rename: Rename | None, prefix: str) -> str | None:
    if not name.startswith(prefix):
        return None
    own = name[len(prefix) :]
    if rename is None:
        return own
    return rename(own) if callable(rename) else rename.get(own, own)


def _fitting(variable: Tensor, name: str, value: Array) -> Array:
    """A value in the dtype of its variable.

    Raises:
        FormatError: it has another shape, or is of another kind.
    """
    floats = is_floating(value.dtype) and is_floating(variable.dtype)
    if value.shape != variable.shape or not (floats or np.can_cast(value.dtype, variable.dtype, "same_kind")):
        actual = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
        raise FormatError(f"load_safetensors: {name!r}: expected {variable.type}, actual {actual}")
    return value.astype(variable.dtype, copy=False)


def _files(path: Path) -> list[Path]:
    """The files that a path means.

    Raises:
        FormatError: a damaged index, or one that names files elsewhere.
    """
    if path.is_dir():
        path = path / (INDEX if (path / INDEX).exists() else SINGLE)
    if path.suffix != ".json":
        return [path]
    try:
        index = tensorfile.json_of(path.read_text("utf-8"))
        names = list(dict.fromkeys(index["weight_map"].values()))
        if not names or any(not isinstance(name, str) or os.path.basename(name) != name for name in names):
            raise ValueError("weight_map has values that are no names of files beside it")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{path}: no index of safetensors files, or a damaged one: {error}") from error
    return [path.parent / name for name in names]
