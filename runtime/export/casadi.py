"""Programs as CasADi loads them: its interface of external functions.

A function ``f`` and those that say how it is called: ``f_n_in``, ``f_name_in``, ``f_sparsity_in``, ``f_work``, …; and
as functions with the same, where every result has a derivative,

    jac_f(x…, out…)                          the Jacobian of each result by each feed
    adj1_f(x…, out…, adj…)                   the gradient by each feed of the sum of all results times ``adj``
    jac_adj1_f(x…, out…, adj…, out_adj…)     the Jacobian of each of these gradients by each x, out and adj

of which CasADi makes gradients, Jacobians and Hessians of what the function is part of. Jacobians are sparse, by the
patterns of ``staticgrad/compiler/autodiff/sparse.py``: CasADi stores the elements that may differ from zero, column
after column, and colours and factorises by these patterns. Arguments that a program does not read, such as the results
that a Jacobian is given, have no elements at all.

CasADi's matrices are dense columns one after the other, so feeds and results of two dimensions are declared once more,
transposed; of one dimension they are columns, of none they are 1×1. Integers are ``long long``; an argument whose
address is null is zero, and a result whose address is null is not wanted. See "Using the generated code" and "External
functions" in CasADi's manual (https://web.casadi.org/docs).

    int f(const double **arg, double **res, long long *iw, double *w, int mem)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from staticgrad.base.addresses import ALIGNMENT
from staticgrad.base.errors import GradientError, GraphError
from staticgrad.base.frozen import frozen
from staticgrad.base.types import sizes
from staticgrad.compiler.emit.llvm import IRModule, integer
from staticgrad.compiler.machine.target import Target
from staticgrad.compiler.native.linked import ENTRY, MAIN
from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS, Array
from staticgrad.runtime.callers.cfunction_text import NULL, is_null, item, rounded
from staticgrad.runtime.export.entries import CallMemory, EntryForm
from staticgrad.runtime.export.interface import Entry, NamedType
from staticgrad.runtime.export.nests import described_nest

if TYPE_CHECKING:
    from staticgrad.graph.sparse import SparseTensor
    from staticgrad.runtime.export.source import ExportSource

WORD = 8  # bytes of a double, in which CasADi counts a workspace
MOST_DIMENSIONS = 2


@frozen(eq=False)
class CasadiMatrix:
    """An argument or result as CasADi sees it: its name, rows and columns, and where its elements are: the places of
    the columns' first elements and the row of each, or None of a dense matrix."""

    name: str
    shape: tuple[int, int]
    places: tuple[Array, Array] | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is stored, so that no program reads or writes it."""
        return self.places is not None and not len(self.places[1])

    @property
    def sparsity(self) -> bytes:
        """In CasADi's integers: rows, columns, places, or 1 of a dense matrix."""
        parts = (np.ones(1, np.int64),) if self.places is None else self.places
        return np.concatenate([self.shape, *parts]).astype(np.int64).tobytes()


@frozen(eq=False)
class External:
    """A function as CasADi calls it, and the program that takes those arguments, and gives those results, that have
    elements."""

    source: ExportSource
    arguments: tuple[CasadiMatrix, ...]
    results: tuple[CasadiMatrix, ...]


def externals(source: ExportSource, name: str) -> dict[str, External]:
    """A function and its derivatives, by their names.

    Raises:
        GraphError: a feed or result that is no float64, or of more than two dimensions; open sizes.
    """
    fetched = [x for x, _ in source.fetched]
    for x in (*source.feeds, *fetched):
        if not x.type.static:
            raise GraphError(f"export: 'casadi': {x.name!r}: expected known sizes, actual {x.type}", source=x.source)
        if x.dtype != np.float64 or x.ndim > MOST_DIMENSIONS:
            raise GraphError(f"export: 'casadi': {x.name!r}: expected float64 of at most {MOST_DIMENSIONS} dimensions,"
                             f" actual {x.type}", source=x.source)  # fmt: skip
    if source.has_ops:
        raise GraphError("export: 'casadi': expected tensors alone to be fetched: an external function has no effects")
    _, keys = described_nest(source.fetches)
    xs = [_matrix(x.name, x) for x in source.feeds]
    ys = [_matrix(key, y) for key, y in zip(_distinct([k or y.name for k, y in zip(keys, fetched)]), fetched)]
    with source.store.graph:
        made = _CasadiDerivatives(source, xs, ys)
        found = {name: made.external(fetched, xs, ys)}
        for prefix, declare in (("jac_", made.jacobian), ("adj1_", made.gradient), ("jac_adj1_", made.second)):
            try:
                found[f"{prefix}{name}"] = declare(fetched)
            except GradientError:
                break  # as for those that follow
    return found


class _CasadiDerivatives:
    """Declares the derivatives of a function, on the graph as it is, and then all with feeds and results transposed."""

    def __init__(self, source: ExportSource, xs: Sequence[CasadiMatrix], ys: Sequence[CasadiMatrix]) -> None:
        from staticgrad.ops.sources import placeholder

        self._source = source
        self._xs, self._ys = tuple(xs), tuple(ys)
        self._outs = tuple(_without_elements(f"out_{y.name}", y.shape) for y in ys)
        self._seeds = [placeholder(y.type.shape, y.dtype, name=f"adj_{y.name}") for y, _ in source.fetched]
        self._adjs = tuple(replace(y, name=f"adj_{y.name}") for y in ys)

    def external(
        self, fetches: Sequence[Tensor], arguments: Sequence[CasadiMatrix], results: Sequence[CasadiMatrix]
    ) -> External:
        """A function of the feeds and perhaps of the seeds."""
        from staticgrad.compiler.autodiff.substitution import substituted
        from staticgrad.ops.sources import placeholder
        from staticgrad.ops.views.permuting import transpose

        feeds = [*self._source.feeds, *(self._seeds if set(self._adjs) <= set(arguments) else [])]
        types = self._source.types()
        columns = [placeholder(types.get(x, x.type).shape[::-1], x.dtype, name=x.name) for x in feeds]
        values = {x: transpose(z) for x, z in zip(feeds, columns, strict=True)}
        made = [transpose(y) for y in substituted(fetches, values, "export")]
        return External(self._source.compile(made, columns), tuple(arguments), tuple(results))

    def jacobian(self, ys: Sequence[Tensor]) -> External:
        from staticgrad.compiler.autodiff.sparse import sparse_jacobian

        blocks = {
            f"jac_{y.name}_{x.name}": _by_columns(sparse_jacobian(of, by), of, by)
            for of, y in zip(ys, self._ys)
            for by, x in zip(self._source.feeds, self._xs)
        }
        return self._sparse(blocks, [*self._xs, *self._outs])

    def gradient(self, ys: Sequence[Tensor]) -> External:
        arguments = [*self._xs, *self._outs, *self._adjs]
        return self.external(self._slopes(ys), arguments, [replace(x, name=f"adj_{x.name}") for x in self._xs])

    def second(self, ys: Sequence[Tensor]) -> External:
        """Blocks of the Hessian of all results times their seeds, summed, by x, and by seeds Jacobians, transposed."""
        from staticgrad.compiler.autodiff.sparse import sparse_hessian, sparse_jacobian

        feeds, slopes = self._source.feeds, self._slopes(ys)
        energy = functools.reduce(FUNCTIONS.add, [FUNCTIONS.sum(y * seed) for y, seed in zip(ys, self._seeds)])
        ends = [_without_elements(f"out_adj_{x.name}", x.shape) for x in self._xs]
        blocks: dict[str, SparseTensor | CasadiMatrix] = {}
        for x, name, slope in zip(feeds, self._xs, slopes, strict=True):
            for z, other in zip(feeds, self._xs, strict=True):
                found = sparse_hessian(energy, x) if x is z else sparse_jacobian(slope, z)
                blocks[f"jac_adj_{name.name}_{other.name}"] = _by_columns(found, x, z)
            for out in self._outs:
                called = f"jac_adj_{name.name}_{out.name}"
                blocks[called] = _without_elements(called, (len(_places(x)), math.prod(out.shape)))
            for y, adj in zip(ys, self._adjs, strict=True):
                blocks[f"jac_adj_{name.name}_{adj.name}"] = _by_columns(sparse_jacobian(y, x).T, x, y)
        return self._sparse(blocks, [*self._xs, *self._outs, *self._adjs, *ends])

    def _slopes(self, ys: Sequence[Tensor]) -> list[Tensor]:
        from staticgrad.compiler.autodiff.reverse import gradients

        return gradients(ys, list(self._source.feeds), self._seeds, unconnected_gradients="zero")

    def _sparse(self, blocks: Mapping[str, SparseTensor | CasadiMatrix], arguments: Sequence[CasadiMatrix]) -> External:
        """A function of blocks by columns, those without elements as they are."""
        results = [
            block
            if isinstance(block, CasadiMatrix)
            else CasadiMatrix(name, block.shape[::-1], (block.indptr, block.cols))
            for name, block in blocks.items()
        ]
        fetches = [block.values for block in blocks.values() if not isinstance(block, CasadiMatrix) and block.nnz]
        return self.external(fetches, arguments, results)


def _by_columns(block: SparseTensor, of: Tensor, by: Tensor) -> SparseTensor:
    """The transpose of a Jacobian, which has the elements of its columns one after the other, with the elements of both
    tensors in CasADi's order."""
    from staticgrad.graph.sparse import taken

    rows, cols = _places(of)[block.rows], _places(by)[block.cols]
    order = np.lexsort((rows, cols))
    return taken(block, order, cols[order], rows[order], block.shape[::-1])


def _places(x: Tensor) -> Array:
    """The place of each element of a tensor, row after row, in CasADi's matrix, column after column."""
    shape = sizes(x.type.shape)
    return np.arange(math.prod(shape)).reshape(shape[::-1]).T.ravel()


def _matrix(name: str, x: Tensor) -> CasadiMatrix:
    """A dense one; one axis is a column."""
    rows, columns, *_ = (*sizes(x.type.shape), 1, 1)
    return CasadiMatrix(name, (rows, columns))


def _without_elements(name: str, shape: tuple[int, int]) -> CasadiMatrix:
    return CasadiMatrix(name, shape, (np.zeros(shape[1] + 1, np.int64), np.zeros(0, np.int64)))


def _stored(matrices: Sequence[CasadiMatrix]) -> list[int]:
    """The numbers of those with elements."""
    return [number for number, matrix in enumerate(matrices) if not matrix.is_empty]


def text(entry: EntryForm, target: Target, external: External) -> str:
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
    for number, place in enumerate(_stored(external.arguments)):
        given = item(f, arguments, place)
        f.store(f.select(is_null(f, given), zeros, given), f.offset(feeds, number, "ptr"))
    unwanted = itertools.accumulate(map(rounded, form.results), initial=entry.arena_bytes)
    for number, (place, offset) in enumerate(zip(_stored(external.results), unwanted)):
        given = item(f, wanted, place)
        f.store(f.select(is_null(f, given), f.offset(frame, offset, "i8"), given), f.offset(results, number, "ptr"))
    f.ret(memory.run(feeds, results, frame, frame, memory.own_state(), NULL))
    f.finish()
    return module.text()


def description(name: str, form: EntryForm, target: Target, external: External) -> str:
    """The text of the module with the functions that say how an entry is called."""
    module = IRModule(target)
    workspace = (form.form.frame_bytes + ALIGNMENT) // WORD  # CasADi aligns it to a word
    for function, result, value in (("n_in", "i64", len(external.arguments)),
                                    ("n_out", "i64", len(external.results)), ("checkout", "i32", 0)):  # fmt: skip
        f = module.function(f"{name}_{function}", [], result, internal=False)
        f.ret(integer(value, result))
        f.finish()
    for function, parameters in (("incref", []), ("decref", []), ("release", ["i32"])):
        module.function(f"{name}_{function}", parameters, internal=False).finish()
    f = module.function(f"{name}_default_in", ["i64"], "double", internal=False)
    f.ret(f.const(0.0, "double"))
    f.finish()
    for way, matrices in (("in", external.arguments), ("out", external.results)):
        _write_table(module, f"{name}_name_{way}", [_name(matrix.name) for matrix in matrices])
        _write_table(module, f"{name}_sparsity_{way}", [matrix.sparsity for matrix in matrices])
    f = module.function(f"{name}_work", ["ptr", "ptr", "ptr", "ptr"], "i32", internal=False)
    for place, count in zip(f.params, (len(external.arguments), len(external.results), 0, workspace), strict=True):
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


def _name(name: str) -> bytes:
    return f"{''.join(c if c.isalnum() and c.isascii() else '_' for c in name)}\0".encode()


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that several have, such as the parts of a list under one key."""
    several, found = Counter(names), Counter[str]()
    result = []
    for name in names:
        result.append(f"{name}_{found[name]}" if several[name] > 1 else name)
        found[name] += 1
    return result


def described(entries: Sequence[Entry], of: Mapping[str, External]) -> tuple[Entry, ...]:
    """Entries with the names under which CasADi knows their arguments and results; those without elements are left out,
    and sparse results are their elements."""

    def named(arrays: Sequence[NamedType], matrices: Sequence[CasadiMatrix]) -> tuple[NamedType, ...]:
        kept = [matrices[number] for number in _stored(matrices)]
        return tuple(NamedType(matrix.name, array.type) for array, matrix in zip(arrays, kept, strict=True))

    return tuple(
        replace(entry, feeds=named(entry.feeds, one.arguments), results=named(entry.results, one.results))
        for entry, one in ((entry, of[entry.name]) for entry in entries)
    )
