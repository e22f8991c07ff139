"""Programs as CasADi loads them: its interface of external functions.

A function ``f`` and those that say how it is called: ``f_n_in``, ``f_name_in``, ``f_sparsity_in``, ``f_work``, … ; and
``jac_f`` with the same, the Jacobian of each result by each feed, where every result has one. CasADi's matrices are
dense columns one after the other, so feeds and results of two dimensions are declared once more, transposed; of one
dimension they are columns, of none they are 1×1. Integers are ``long long``; a feed whose address is null is zero, and
a result whose address is null is not wanted. See "Using the generated code" and "External functions" in CasADi's manual
(https://web.casadi.org/docs).

    int f(const double **arg, double **res, long long *iw, double *w, int mem)
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from staticgrad.base.addresses import ALIGNMENT
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.types import TensorType, sizes
from staticgrad.compiler.emit.llvm import IRModule, integer
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.linked import ENTRY, MAIN
from staticgrad.graph.graph import Tensor
from staticgrad.runtime.callers.cfunction_text import NULL, is_null, item, rounded
from staticgrad.runtime.export.entries import CallMemory, EntryForm
from staticgrad.runtime.export.interface import Entry, NamedType
from staticgrad.runtime.export.nests import described_nest

if TYPE_CHECKING:
    from staticgrad.runtime.export.source import ExportSource

WORD = 8  # bytes of a double, in which CasADi counts a workspace
MOST_DIMENSIONS = 2


def columns(source: ExportSource, name: str) -> dict[str, ExportSource]:
    """The sources of a function and of its Jacobian over columns.

    Raises:
        GraphError: a feed or result that is no float64, or of more than two dimensions; open sizes.
    """
    from staticgrad.compiler.autodiff.substitution import substituted
    from staticgrad.ops.sources import placeholder
    from staticgrad.ops.views.permuting import transpose

    types = source.types()
    fetched = [x for x, _ in source.fetched]
    for x in (*source.feeds, *fetched):
        if not x.type.static:
            raise GraphError(f"export: 'casadi': {x.name!r}: expected known sizes, actual {x.type}", source=x.source)
        if x.dtype != np.float64 or x.ndim > MOST_DIMENSIONS:
            raise GraphError(f"export: 'casadi': {x.name!r}: expected float64 of at most {MOST_DIMENSIONS} dimensions,"
                             f" actual {x.type}", source=x.source)  # fmt: skip
    if source.has_ops:
        raise GraphError("export: 'casadi': expected tensors alone to be fetched: an external function has no effects")
    with source.store.graph:
        slopes = _slopes(fetched, source.feeds)
        feeds = [placeholder(types[x].shape[::-1], x.dtype, name=x.name) for x in source.feeds]
        values = {x: transpose(z) for x, z in zip(source.feeds, feeds, strict=True)}
        results = [transpose(y) for y in substituted([*fetched, *slopes], values, "export")]
        values_of = [placeholder(y.type.shape, y.dtype, name=f"out_{x.name}") for x, y in zip(fetched, results)]
    whole = {name: source.compile(results[: len(fetched)], feeds)}
    if slopes:  # a Jacobian is also given the results
        whole[f"jac_{name}"] = source.compile(results[len(fetched) :], [*feeds, *values_of])
    return whole


def _slopes(ys: Sequence[Tensor], xs: Sequence[Tensor]) -> list[Tensor]:
    """The Jacobian of each result by each feed; none where one has none."""
    from staticgrad.compiler.autodiff.forward import jacobian

    try:
        return [slope for y in ys for slope in jacobian(y, list(xs))]
    except GradientError:
        return []


def text(entry: EntryForm, target: Target) -> str:
    """The module of an entry of the type that CasADi calls."""
    form = entry.form
    module = IRModule(target)
    module.declare(MAIN, "i32", ["ptr", "ptr", "ptr"])
    f = module.function(ENTRY, ["ptr", "ptr", "ptr", "ptr", "i32"], "i32", internal=False)
    arguments, wanted, _, words, _ = f.params
    memory = CallMemory(f, entry)
    feeds, results = f.stack(WORD * max(form.feeds, 1)), f.stack(WORD * max(len(form.results), 1))
    zeros = f.symbol(module.data("zeros", bytes(max(entry.feed_bytes, default=WORD) or WORD)))
    address = f.emit("i64", f"ptrtoint {words} to i64")
    begin = f.binary("and", f.binary("add", address, integer(ALIGNMENT - 1)), integer(-ALIGNMENT))
    frame = f.emit("ptr", f"inttoptr {begin} to ptr")
    for number in range(form.feeds):
        given = item(f, arguments, number)
        f.store(f.select(is_null(f, given), zeros, given), f.offset(feeds, number, "ptr"))
    unwanted = itertools.accumulate(map(rounded, form.results), initial=entry.arena_bytes)
    for number, offset in zip(range(len(form.results)), unwanted):
        given = item(f, wanted, number)
        f.store(f.select(is_null(f, given), f.offset(frame, offset, "i8"), given), f.offset(results, number, "ptr"))
    f.ret(memory.run(feeds, results, frame, frame, memory.own_state(), NULL))
    f.finish()
    return module.text()


def description(entry: Entry, form: EntryForm, target: Target) -> str:
    """The text of the module with the functions that say how an entry is called."""
    module, name = IRModule(target), entry.name
    workspace = (form.form.frame_bytes + ALIGNMENT) // WORD  # CasADi aligns it to a word
    for function, result, value in (("n_in", "i64", len(entry.feeds)), ("n_out", "i64", len(entry.results)),
                                    ("checkout", "i32", 0)):  # fmt: skip
        f = module.function(f"{name}_{function}", [], result, internal=False)
        f.ret(integer(value, result))
        f.finish()
    for function, parameters in (("incref", []), ("decref", []), ("release", ["i32"])):
        module.function(f"{name}_{function}", parameters, internal=False).finish()
    f = module.function(f"{name}_default_in", ["i64"], "double", internal=False)
    f.ret(f.const(0.0, "double"))
    f.finish()
    for way, arrays in (("in", entry.feeds), ("out", entry.results)):
        _write_table(module, f"{name}_name_{way}", [_name(array) for array in arrays])
        _write_table(module, f"{name}_sparsity_{way}", [_sparsity(array) for array in arrays])
    f = module.function(f"{name}_work", ["ptr", "ptr", "ptr", "ptr"], "i32", internal=False)
    for place, count in zip(f.params, (len(entry.feeds), len(entry.results), 0, workspace), strict=True):
        with f.when(f.compare("icmp ne", place, NULL)):
            f.store(integer(count), place)
    f.ret(integer(0, "i32"))
    f.finish()
    return module.text()


def _write_table(module: IRModule, name: str, contents: list[bytes]) -> None:
    """A function that gives the address of constant bytes by their number, null for others."""
    f = module.function(name, ["i64"], "ptr", internal=False)
    found = NULL
    for number, content in enumerate(contents):
        place = f.symbol(module.data(f"{name}.{number}", content))
        found = f.select(f.compare("icmp eq", f.params[0], integer(number)), place, found)
    f.ret(found)
    f.finish()


def _name(array: NamedType) -> bytes:
    return f"{''.join(c if c.isalnum() and c.isascii() else '_' for c in array.name)}\0".encode()


def _sparsity(array: NamedType) -> bytes:
    """A dense matrix: rows, columns, 1. The array has its axes reversed; one axis is a column."""
    shape = sizes(array.type.shape)[::-1]
    rows, count = (*shape, 1, 1)[:2] if len(shape) <= MOST_DIMENSIONS else (0, 0)
    return np.array([rows, count, 1], np.int64).tobytes()


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that several have, such as the parts of a list under one key."""
    several, found = Counter(names), Counter[str]()
    result = []
    for name in names:
        result.append(f"{name}_{found[name]}" if several[name] > 1 else name)
        found[name] += 1
    return result


def described(entries: Sequence[Entry], source: ExportSource) -> tuple[Entry, ...]:
    """The entries of ``columns`` under the names that the feeds have, and its results by their keys, or else their own
    names; the results of a Jacobian as matrices with a row for each element of a result and a column for each element
    of a feed."""
    _, keys = described_nest(source.fetches)
    xs = [x.name for x in source.feeds]
    ys = _distinct([key or x.name for key, (x, _) in zip(keys, source.fetched, strict=True)])

    def named(arrays: Sequence[NamedType], names: Sequence[str]) -> tuple[NamedType, ...]:
        return tuple(NamedType(name, array.type) for array, name in zip(arrays, names, strict=True))

    first = replace(entries[0], feeds=named(entries[0].feeds, xs), results=named(entries[0].results, ys))
    if len(entries) == 1:
        return (first,)
    slopes = []
    for array, (y, x) in zip(entries[1].results, itertools.product(first.results, first.feeds), strict=True):
        count, rows = (math.prod(sizes(one.type.shape)) for one in (x, y))
        slopes.append(NamedType(f"jac_{y.name}_{x.name}", TensorType((count, rows), array.type.dtype)))
    feeds = named(entries[1].feeds, [*xs, *(f"out_{name}" for name in ys)])
    return first, replace(entries[1], feeds=feeds, results=tuple(slopes))
