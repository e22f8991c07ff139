"""staticgrad: declare a graph once, get forward, backward and update as one native function."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

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

__version__ = "0.1.0"

_LAZY = {
    "Session": "staticgrad.runtime.session",
    "Executable": "staticgrad.runtime.executable",
    "Tape": "staticgrad.runtime.tape",
    "gradients": "staticgrad.compiler.autodiff",
    "jvp": "staticgrad.compiler.autodiff",
    "jacobian": "staticgrad.compiler.autodiff",
    "hessian": "staticgrad.compiler.autodiff",
    "parse": "staticgrad.text",
}
_MODULES = ("nest", "nn", "optim", "init", "random", "linalg")


def _load_ops() -> None:
    package = importlib.import_module("staticgrad.ops")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"staticgrad.ops.{module.name}")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"staticgrad.{name}")
    else:
        _load_ops()
        if name not in FUNCTIONS:
            raise AttributeError(f"module 'staticgrad' has no attribute {name!r}")
        value = getattr(FUNCTIONS, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    _load_ops()
    return sorted({*globals(), *_LAZY, *_MODULES, *FUNCTIONS.names()})


__all__ = [
    "BoundsError", "BuffersFreedError", "FeedError", "FetchError", "FormatError", "GradientError", "Graph",
    "GraphError", "Node", "NumericsError", "PromotionWarning", "StateChangedError", "StaticGradError", "Tensor",
    "bool", "control_dependencies", "dim", "enable_grad", "float32", "float64", "get_default_graph", "int32", "int64",
    "no_grad", "reset_default_graph", "uint8",
]  # fmt: skip
