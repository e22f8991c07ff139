"""``sg.checkpoint``: what a function computes is computed again for a backward instead of being kept for it.

Input: a function of tensors and what it is called with. Output: what it returns. Its ops are declared as they
would be without it; they only carry the mark by which a derivative declares them again (``compiler/autodiff/again``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from staticgrad.base.depth import one_level
from staticgrad.base.errors import GraphError
from staticgrad.graph.optable import public
from staticgrad.graph.scopes import checkpointed

T = TypeVar("T")


@public
def checkpoint(fn: Callable[..., T], *inputs: Any) -> T:
    """``fn(*inputs)``, of which a backward keeps nothing but what it began with.

    The values that ``fn`` computes are given up after the forward. A backward that reads them computes them again when
    its gradient arrives, from ``inputs`` and other tensors that ``fn`` uses: less memory, at the price of computing
    ``fn`` twice. Random numbers are the same again; effects (``sg.print``, ``sg.assign``, running statistics) happen
    once. It holds for runs and for tapes, in any order of differentiation and within each other.

    Nothing is written to a file: that is ``Session.save``, which keeps variables, and ``Session.restore``.

    Args:
        fn: declares ops, a function or a layer; what it returns may be any nest.
        inputs: what it is called with; any nests.

    Raises:
        GraphError: ``fn`` is not callable.

    Example:
        >>> x = sg.constant([0.5, 1.0])
        >>> y = sg.checkpoint(lambda x: sg.exp(sg.sin(x)), x)
        >>> sg.Session().run(sg.gradients(y, [x])[0]).round(3)
        array([1.417, 1.253], dtype=float32)
    """
    if not callable(fn):
        raise GraphError(f"checkpoint: expected a function and its operands, actual {fn!r}")
    with one_level("checkpoint"), checkpointed():
        return fn(*inputs)
