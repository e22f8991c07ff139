"""staticgrad: declare a graph once, get forward, backward and update as one native function.

The facade: the names that users see. What graphs are made of is imported at once; ops, layers, sessions and derivatives
when one of them is first used, since most of the cost of an import is theirs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from staticgrad.errors import (
    BoundsError,
    BuffersFreedError,
    FeedError,
    FetchError,
    FormatError,
    GradientError,
    GraphError,
    NumericsError,
    PromotionWarning,
    StateChangedError,
    StaticGradError,
)
from staticgrad.graph import (
    Graph,
    Node,
    Tensor,
    control_dependencies,
    enable_grad,
    get_default_graph,
    no_grad,
    reset_default_graph,
)
from staticgrad.optable import FUNCTIONS
from staticgrad.types import bool_ as bool
from staticgrad.types import dim, float32, float64, int32, int64, uint8

if TYPE_CHECKING:
    from staticgrad import init, linalg, nest, nn, optim, random
    from staticgrad.checking import check_gradients
    from staticgrad.compiler.autodiff import gradients, hessian, jacobian, jvp
    from staticgrad.compiler.batching import vmap
    from staticgrad.ops.checkpointing import checkpoint
    from staticgrad.ops.contraction import (
        einsum,
        matmul,
        outer,
        tensordot,
        vecdot,
    )
    from staticgrad.ops.control import (
        cond,
        scan,
        while_loop,
    )
    from staticgrad.ops.control import (
        map_ as map,
    )
    from staticgrad.ops.cumulative import (
        cumulative_prod,
        cumulative_sum,
        diff,
    )
    from staticgrad.ops.custom import custom_gradient
    from staticgrad.ops.effects import (
        assert_,
        assign,
        group,
        py_call,
    )
    from staticgrad.ops.effects import (
        print_ as print,
    )
    from staticgrad.ops.elementwise import (
        abs,
        acos,
        acosh,
        add,
        asin,
        asinh,
        astype,
        atan,
        atan2,
        atanh,
        bitwise_and,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        ceil,
        clip,
        cos,
        cosh,
        divide,
        equal,
        erf,
        erfc,
        erfinv,
        exp,
        exp2,
        expm1,
        floor,
        floor_divide,
        greater,
        greater_equal,
        hypot,
        identity,
        isfinite,
        isinf,
        isnan,
        less,
        less_equal,
        log,
        log1p,
        log2,
        log10,
        logaddexp,
        logical_and,
        logical_not,
        logical_or,
        logical_xor,
        maximum,
        minimum,
        multiply,
        negative,
        not_equal,
        positive,
        pow,
        reciprocal,
        remainder,
        round,
        rsqrt,
        sign,
        sin,
        sinh,
        sqrt,
        square,
        stop_gradient,
        subtract,
        tan,
        tanh,
        trunc,
        where,
    )
    from staticgrad.ops.indexing import (
        scatter,
        take,
        take_along_axis,
    )
    from staticgrad.ops.matrices import (
        meshgrid,
        tril,
        triu,
    )
    from staticgrad.ops.reductions import (
        all,
        any,
        argmax,
        argmin,
        count_nonzero,
        logsumexp,
        max,
        mean,
        min,
        prod,
        shape,
        std,
        sum,
        var,
    )
    from staticgrad.ops.sorting import (
        argsort,
        isin,
        searchsorted,
        sort,
    )
    from staticgrad.ops.sources import (
        arange,
        constant,
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
    from staticgrad.ops.special import (
        digamma,
        lgamma,
        polygamma,
    )
    from staticgrad.ops.variables import (
        Variable,
    )
    from staticgrad.ops.views import (
        broadcast_arrays,
        broadcast_to,
        concat,
        expand_dims,
        flatten,
        flip,
        matrix_transpose,
        moveaxis,
        pad,
        permute_dims,
        repeat,
        reshape,
        roll,
        split,
        squeeze,
        stack,
        swapaxes,
        tile,
        transpose,
        unstack,
    )
    from staticgrad.parser import parse
    from staticgrad.runtime.executable import Executable
    from staticgrad.runtime.session import Session
    from staticgrad.runtime.tape import Tape

__version__ = "0.1.0"

_LATER = {
    "Executable": "staticgrad.runtime.executable",
    "Session": "staticgrad.runtime.session",
    "Tape": "staticgrad.runtime.tape",
    "check_gradients": "staticgrad.checking",
    "gradients": "staticgrad.compiler.autodiff",
    "hessian": "staticgrad.compiler.autodiff",
    "jacobian": "staticgrad.compiler.autodiff",
    "jvp": "staticgrad.compiler.autodiff",
    "vmap": "staticgrad.compiler.batching",
    "parse": "staticgrad.parser",
}
_MODULES = frozenset({"init", "linalg", "nest", "nn", "optim", "random"})


if not TYPE_CHECKING:  # with a __getattr__, a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        value: Any
        if name in _MODULES:
            return importlib.import_module(f"staticgrad.{name}")
        if name in _LATER:
            value = getattr(importlib.import_module(_LATER[name]), name)
        elif name in __all__:
            importlib.import_module("staticgrad.ops")
            value = getattr(FUNCTIONS, name)
        else:
            raise AttributeError(f"module 'staticgrad' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "BoundsError",
    "BuffersFreedError",
    "Executable",
    "FeedError",
    "FetchError",
    "FormatError",
    "GradientError",
    "Graph",
    "GraphError",
    "Node",
    "NumericsError",
    "PromotionWarning",
    "Session",
    "StateChangedError",
    "StaticGradError",
    "Tape",
    "Tensor",
    "Variable",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "assert_",
    "assign",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "ceil",
    "check_gradients",
    "checkpoint",
    "clip",
    "concat",
    "cond",
    "constant",
    "control_dependencies",
    "cos",
    "cosh",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "custom_gradient",
    "diff",
    "digamma",
    "dim",
    "divide",
    "einsum",
    "enable_grad",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "flatten",
    "flip",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "get_default_graph",
    "gradients",
    "greater",
    "greater_equal",
    "group",
    "hessian",
    "hypot",
    "identity",
    "init",
    "int32",
    "int64",
    "iota",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "jacobian",
    "jvp",
    "less",
    "less_equal",
    "lgamma",
    "linalg",
    "linspace",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
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
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "negative",
    "nest",
    "nn",
    "no_grad",
    "not_equal",
    "ones",
    "ones_like",
    "optim",
    "outer",
    "pad",
    "parse",
    "permute_dims",
    "placeholder",
    "polygamma",
    "positive",
    "pow",
    "print",
    "prod",
    "py_call",
    "random",
    "reciprocal",
    "remainder",
    "repeat",
    "reset_default_graph",
    "reshape",
    "roll",
    "round",
    "rsqrt",
    "scan",
    "scatter",
    "searchsorted",
    "shape",
    "sign",
    "sin",
    "sinh",
    "sort",
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
    "transpose",
    "tril",
    "triu",
    "trunc",
    "uint8",
    "unstack",
    "var",
    "vecdot",
    "vmap",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]  # fmt: skip
