"""staticgrad: declare a graph once, get forward, backward and update as one native function.

The facade: the names that users see. What graphs are made of is imported at once; ops, layers, sessions and derivatives
when one of them is first used, since most of the cost of an import is theirs.

Functions, layers and classes have docstrings with examples: ``help(sg.scan)``, ``help(sg.nn.GRU)``,
``help(sg.Session)``. Tutorials and guides are in ``docs`` of a checkout. ``make docs`` builds the site
``build/docs/index.html`` of them and of the reference, which is made from the docstrings; the files in
``docs/reference`` only list what goes into it.

``dir(staticgrad)`` has all public names. ``from staticgrad import *`` imports those that are not names of Python's own
functions and types (``print``, ``sum``, ``map``, ``bool``, …), which stay what they are.
"""

from __future__ import annotations

import builtins
import importlib
import os
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from staticgrad.base.boundary import exposed
from staticgrad.base.collection import importing
from staticgrad.base.errors import (
    BoundsError,
    BroadcastWarning,
    BuffersFreedError,
    DuplicateLayerWarning,
    ExecutorWarning,
    FeedError,
    FetchError,
    FormatError,
    FrozenValueWarning,
    GradientError,
    GraphError,
    GrowthWarning,
    MemoryBudgetWarning,
    ModeWarning,
    NumericsError,
    PromotionWarning,
    RecompileWarning,
    StaleGradientWarning,
    StateChangedError,
    StaticGradError,
    StaticGradWarning,
    UnsupportedError,
    UpdateWarning,
)
from staticgrad.base.hints import missing_from_module
from staticgrad.base.types import bool_ as bool
from staticgrad.base.types import (
    dim,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from staticgrad.graph.graph import Graph, Node, Tensor, get_default_graph, provide, reset_default_graph
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.graph.scopes import control_dependencies, enable_grad, is_grad_enabled, no_grad, set_grad_enabled

# In a checkout the subpackages compiler and runtime lie beside this folder, in a wheel inside it. Extended, the path
# finds them in both, so that Python started in a checkout imports it as it stands, even if a wheel is installed too.
_checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_beside = [os.path.join(_checkout, name, "__init__.py") for name in ("compiler", "runtime")]
if [path for path in _beside if os.path.isfile(path)] == _beside:
    __path__.append(_checkout)


def _text(graph: Graph, full: builtins.bool) -> str:
    from staticgrad.graph.text import print_graph

    return print_graph(graph, full)


def _html(graph: Graph) -> str:
    from staticgrad.graph.html.graphs import graph_html

    return graph_html(graph)


def _namespace() -> Any:
    return importlib.import_module("staticgrad.array_api")


provide(text=_text, html=_html, namespace=_namespace)  # whose modules are imported when they are asked for

if TYPE_CHECKING:
    from staticgrad import array_api, callbacks, distributed, init, linalg, nest, nn, optim, random
    from staticgrad.base.types import bfloat16
    from staticgrad.compiler.autodiff.batching import vmap
    from staticgrad.compiler.autodiff.forward import hessian, jacobian, jvp
    from staticgrad.compiler.autodiff.reverse import gradients
    from staticgrad.compiler.autodiff.sparse import sparse_hessian, sparse_jacobian, sparsity
    from staticgrad.functions.checking import check_gradients
    from staticgrad.functions.function import function, hvp, value_and_grad
    from staticgrad.functions.implicit import fixed_point, root
    from staticgrad.functions.linearization import ggn_product, linearize
    from staticgrad.functions.minimization.least_squares import least_squares
    from staticgrad.functions.minimization.minimize import minimize
    from staticgrad.functions.own import OwnOp, op
    from staticgrad.graph.dtypes import can_cast, finfo, iinfo, isdtype, result_type
    from staticgrad.graph.sparse import SparseTensor
    from staticgrad.odes.integration import odeint
    from staticgrad.ops.checkpointing import checkpoint
    from staticgrad.ops.contraction import (
        matmul,
        outer,
        tensordot,
        vecdot,
    )
    from staticgrad.ops.control.branches import cond
    from staticgrad.ops.control.loops import map_ as map
    from staticgrad.ops.control.loops import scan, while_loop
    from staticgrad.ops.cumulative import (
        cumulative_prod,
        cumulative_sum,
        diff,
    )
    from staticgrad.ops.curves import gradient, interp, trapezoid
    from staticgrad.ops.custom import custom_gradient, once_differentiable
    from staticgrad.ops.distinct import nonzero, unique
    from staticgrad.ops.effects import (
        assert_,
        assign,
        group,
        py_call,
    )
    from staticgrad.ops.effects import (
        print_ as print,
    )
    from staticgrad.ops.einsum import einsum
    from staticgrad.ops.elementwise.arithmetic import (
        abs,
        add,
        copysign,
        divide,
        floor_divide,
        maximum,
        minimum,
        multiply,
        negative,
        positive,
        pow,
        reciprocal,
        remainder,
        sign,
        signbit,
        square,
        subtract,
    )
    from staticgrad.ops.elementwise.bessel import i0, i0e, i1, i1e, iv, ive
    from staticgrad.ops.elementwise.bits import bitcast, clz, nextafter, popcount
    from staticgrad.ops.elementwise.closeness import allclose, isclose, nan_to_num
    from staticgrad.ops.elementwise.comparison import (
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        equal,
        greater,
        greater_equal,
        isfinite,
        isinf,
        isnan,
        less,
        less_equal,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        not_equal,
    )
    from staticgrad.ops.elementwise.copies import astype, identity, stop_gradient
    from staticgrad.ops.elementwise.elementary import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        cbrt,
        cos,
        cosh,
        exp,
        exp2,
        expm1,
        hypot,
        log,
        log1p,
        log2,
        log10,
        logaddexp,
        rsqrt,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
    )
    from staticgrad.ops.elementwise.error import erf, erfc, erfinv
    from staticgrad.ops.elementwise.gamma import (
        digamma,
        lgamma,
        polygamma,
    )
    from staticgrad.ops.elementwise.incomplete_beta import betainc, betaln
    from staticgrad.ops.elementwise.incomplete_gamma import gammainc, gammaincc
    from staticgrad.ops.elementwise.normal import erfcinv, erfcx, log1mexp, log_ndtr, ndtr, ndtri, sinc, xlog1py, xlogy
    from staticgrad.ops.elementwise.rounding import ceil, floor, round, trunc
    from staticgrad.ops.elementwise.selection import clip, where
    from staticgrad.ops.elementwise.zeta import zeta
    from staticgrad.ops.fourier import fft, ifft, irfft, rfft
    from staticgrad.ops.indexing.scattering import scatter
    from staticgrad.ops.indexing.subscripts import take, take_along_axis
    from staticgrad.ops.linalg.blocks import kron
    from staticgrad.ops.linalg.matrices import (
        meshgrid,
        tril,
        triu,
    )
    from staticgrad.ops.missing import nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar
    from staticgrad.ops.moments import mean, std, var
    from staticgrad.ops.neural.softmax import logsumexp
    from staticgrad.ops.positions import argmax, argmin
    from staticgrad.ops.reductions import all, any, count_nonzero, max, min, prod, sum
    from staticgrad.ops.scans import associative_scan, cummax, cummin, logcumsumexp
    from staticgrad.ops.sizes import shape
    from staticgrad.ops.sorting import (
        argsort,
        isin,
        lexsort,
        searchsorted,
        sort,
        topk,
    )
    from staticgrad.ops.sources import (
        accumulated_grad,
        arange,
        asarray,
        constant,
        empty,
        empty_like,
        eye,
        full,
        full_like,
        iota,
        linspace,
        ones,
        ones_like,
        placeholder,
        zeros,
        zeros_like,
    )
    from staticgrad.ops.statistics import (
        average,
        bincount,
        corrcoef,
        cov,
        digitize,
        histogram,
        median,
        percentile,
        ptp,
        quantile,
    )
    from staticgrad.ops.variables import (
        Variable,
    )
    from staticgrad.ops.views.broadcasting import broadcast_arrays, broadcast_to
    from staticgrad.ops.views.joining import concat, roll, split, stack, unstack
    from staticgrad.ops.views.padding import pad
    from staticgrad.ops.views.permuting import matrix_transpose, moveaxis, permute_dims, swapaxes, transpose
    from staticgrad.ops.views.repeating import repeat, tile
    from staticgrad.ops.views.reshaping import expand_dims, flatten, reshape, squeeze
    from staticgrad.ops.views.slicing import flip
    from staticgrad.ops.views.stacking import column_stack, diag, dstack, hstack, vstack
    from staticgrad.runtime.callers.cfunction import CFunction
    from staticgrad.runtime.export.export import export
    from staticgrad.runtime.export.loaded import load
    from staticgrad.runtime.session.executable import Executable
    from staticgrad.runtime.session.session import Session
    from staticgrad.runtime.session.tape import Tape
    from staticgrad.saving.graphs import load_graph, save_graph
    from staticgrad.saving.parser import parse

__version__ = "0.2.0"

newaxis = None  # in an index: an axis of size 1

_LATER = {
    "CFunction": "staticgrad.runtime.callers.cfunction",
    "Executable": "staticgrad.runtime.session.executable",
    "OwnOp": "staticgrad.functions.own",
    "Session": "staticgrad.runtime.session.session",
    "SparseTensor": "staticgrad.graph.sparse",
    "Tape": "staticgrad.runtime.session.tape",
    "bfloat16": "staticgrad.base.types",
    "can_cast": "staticgrad.graph.dtypes",
    "check_gradients": "staticgrad.functions.checking",
    "export": "staticgrad.runtime.export.export",
    "finfo": "staticgrad.graph.dtypes",
    "fixed_point": "staticgrad.functions.implicit",
    "function": "staticgrad.functions.function",
    "ggn_product": "staticgrad.functions.linearization",
    "gradients": "staticgrad.compiler.autodiff.reverse",
    "hessian": "staticgrad.compiler.autodiff.forward",
    "hvp": "staticgrad.functions.function",
    "iinfo": "staticgrad.graph.dtypes",
    "isdtype": "staticgrad.graph.dtypes",
    "jacobian": "staticgrad.compiler.autodiff.forward",
    "jvp": "staticgrad.compiler.autodiff.forward",
    "least_squares": "staticgrad.functions.minimization.least_squares",
    "linearize": "staticgrad.functions.linearization",
    "load": "staticgrad.runtime.export.loaded",
    "load_graph": "staticgrad.saving.graphs",
    "minimize": "staticgrad.functions.minimization.minimize",
    "odeint": "staticgrad.odes.integration",
    "op": "staticgrad.functions.own",
    "parse": "staticgrad.saving.parser",
    "result_type": "staticgrad.graph.dtypes",
    "root": "staticgrad.functions.implicit",
    "save_graph": "staticgrad.saving.graphs",
    "sparse_hessian": "staticgrad.compiler.autodiff.sparse",
    "sparse_jacobian": "staticgrad.compiler.autodiff.sparse",
    "sparsity": "staticgrad.compiler.autodiff.sparse",
    "value_and_grad": "staticgrad.functions.function",
    "vmap": "staticgrad.compiler.autodiff.batching",
}
_MODULES = frozenset({"array_api", "callbacks", "distributed", "init", "linalg", "nest", "nn", "optim", "random"})


if not TYPE_CHECKING:  # with a __getattr__, a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        value: Any
        if name in _MODULES:
            with importing():
                return importlib.import_module(f"staticgrad.{name}")
        if name in _LATER:
            with importing():
                value = getattr(importlib.import_module(_LATER[name]), name)
        elif name in _PUBLIC:
            value = getattr(FUNCTIONS, name)
        else:
            raise missing_from_module(__name__, name)
        value = globals()[name] = exposed(value, __name__, name)
        return value


def __dir__() -> list[str]:
    return [*_PUBLIC, "__version__"]


__all__ = [
    "BoundsError",
    "BroadcastWarning",
    "BuffersFreedError",
    "CFunction",
    "DuplicateLayerWarning",
    "Executable",
    "ExecutorWarning",
    "FeedError",
    "FetchError",
    "FormatError",
    "FrozenValueWarning",
    "GradientError",
    "Graph",
    "GraphError",
    "GrowthWarning",
    "MemoryBudgetWarning",
    "ModeWarning",
    "Node",
    "NumericsError",
    "OwnOp",
    "PromotionWarning",
    "RecompileWarning",
    "Session",
    "SparseTensor",
    "StaleGradientWarning",
    "StateChangedError",
    "StaticGradError",
    "StaticGradWarning",
    "Tape",
    "Tensor",
    "UnsupportedError",
    "UpdateWarning",
    "Variable",
    "abs",
    "accumulated_grad",
    "acos",
    "acosh",
    "add",
    "all",
    "allclose",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "array_api",
    "asarray",
    "asin",
    "asinh",
    "assert_",
    "assign",
    "associative_scan",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "average",
    "betainc",
    "betaln",
    "bfloat16",
    "bincount",
    "bitcast",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "callbacks",
    "can_cast",
    "cbrt",
    "ceil",
    "check_gradients",
    "checkpoint",
    "clip",
    "clz",
    "column_stack",
    "concat",
    "cond",
    "constant",
    "control_dependencies",
    "copysign",
    "corrcoef",
    "cos",
    "cosh",
    "count_nonzero",
    "cov",
    "cummax",
    "cummin",
    "cumulative_prod",
    "cumulative_sum",
    "custom_gradient",
    "diag",
    "diff",
    "digamma",
    "digitize",
    "dim",
    "distributed",
    "divide",
    "dstack",
    "e",
    "einsum",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "export",
    "eye",
    "fft",
    "finfo",
    "fixed_point",
    "flatten",
    "flip",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "function",
    "gammainc",
    "gammaincc",
    "get_default_graph",
    "ggn_product",
    "gradient",
    "gradients",
    "greater",
    "greater_equal",
    "group",
    "hessian",
    "histogram",
    "hstack",
    "hvp",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "identity",
    "ifft",
    "iinfo",
    "inf",
    "init",
    "int8",
    "int16",
    "int32",
    "int64",
    "interp",
    "iota",
    "irfft",
    "is_grad_enabled",
    "isclose",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "iv",
    "ive",
    "jacobian",
    "jvp",
    "kron",
    "least_squares",
    "less",
    "less_equal",
    "lexsort",
    "lgamma",
    "linalg",
    "linearize",
    "linspace",
    "load",
    "load_graph",
    "log",
    "log1mexp",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "map",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimize",
    "minimum",
    "moveaxis",
    "multiply",
    "nan",
    "nan_to_num",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "ndtr",
    "ndtri",
    "negative",
    "nest",
    "newaxis",
    "nextafter",
    "nn",
    "no_grad",
    "nonzero",
    "not_equal",
    "odeint",
    "once_differentiable",
    "ones",
    "ones_like",
    "op",
    "optim",
    "outer",
    "pad",
    "parse",
    "percentile",
    "permute_dims",
    "pi",
    "placeholder",
    "polygamma",
    "popcount",
    "positive",
    "pow",
    "print",
    "prod",
    "ptp",
    "py_call",
    "quantile",
    "random",
    "reciprocal",
    "remainder",
    "repeat",
    "reset_default_graph",
    "reshape",
    "result_type",
    "rfft",
    "roll",
    "root",
    "round",
    "rsqrt",
    "save_graph",
    "scan",
    "scatter",
    "searchsorted",
    "set_grad_enabled",
    "shape",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sort",
    "sparse_hessian",
    "sparse_jacobian",
    "sparsity",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "topk",
    "transpose",
    "trapezoid",
    "tril",
    "triu",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique",
    "unstack",
    "value_and_grad",
    "var",
    "vecdot",
    "vmap",
    "vstack",
    "where",
    "while_loop",
    "xlog1py",
    "xlogy",
    "zeros",
    "zeros_like",
    "zeta",
]  # fmt: skip

_PUBLIC = tuple(__all__)

if not TYPE_CHECKING:
    # To type checkers the list says what may be imported by name; here it is what ``*`` imports.
    __all__ = [name for name in _PUBLIC if name not in vars(builtins)]
