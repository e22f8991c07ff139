"""``sg.linalg.funm``: a function of numbers as one of symmetric matrices.

Input: matrices, and a function of tensors that goes element by element. Output: the matrices with the function of
their eigenvalues. The function's own derivatives give what divided differences need (``ops/linalg/divided.py``).
"""

from __future__ import annotations

from collections.abc import Callable

from staticgrad.base.errors import GraphError
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike, lift
from staticgrad.graph.optable import FUNCTIONS
from staticgrad.ops.linalg.divided import difference, second_difference
from staticgrad.ops.linalg.spectral import matrix_function


def funm(x: TensorLike, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Functions of symmetric matrices: V·diag(fn(w))·Vᵀ of the eigenvalues w and eigenvectors V of ``x``.

    ``x`` is taken for (x + xᵀ)/2, and its gradient is symmetric. Derivatives are right to the second order, at equal
    eigenvalues, too, where those of ``eigh``'s vectors are NaN. A third one is a GradientError, and so is one by
    another tensor that ``fn`` reads: xᵖ, as a function of p too, is ``funm(p * logm(x), sg.exp)``. Matrices that differ
    from their transpose by more than a hundredth of their largest element have NaN for eigenvalues.

    Args:
        x: (…, n, n), n known when declared.
        fn: a function of tensors of any shape, element by element, that can be derived twice.

    Raises:
        GraphError: no square matrices of a size known when declared; ``fn`` changes the shape or the dtype.

    Source: the divided differences of Daleckii and Krein, as in N. Higham, Functions of Matrices (2008).

    Example:
        >>> x = sg.constant(np.eye(2))
        >>> y = sg.linalg.funm(x, lambda w: w**3)
        >>> sg.Session().run([y, *sg.jvp(y, x, np.ones((2, 2)))])
        [array([[1., 0.],
               [0., 1.]]), array([[3., 3.],
               [3., 3.]])]
    """
    if not callable(fn):
        raise GraphError(f"funm: expected a function of tensors, actual {fn!r}")
    o = FUNCTIONS

    def f(w: Tensor) -> Tensor:
        y = lift(fn(w), w.graph)
        if y.shape != w.shape or y.dtype != w.dtype:
            raise GraphError(f"funm: the function of {w.type} shall go element by element, actual {y.type}")
        return y

    def slope(w: Tensor) -> Tensor:
        return jvp(f(w), w, o.ones_like(w))[0]

    def curvature(w: Tensor) -> Tensor:
        return jvp(slope(w), w, o.ones_like(w))[0]

    def first(a: Tensor, b: Tensor) -> Tensor:
        return difference(o, f, slope, a, b)

    return matrix_function("funm", x, f, first, lambda a, b, c: second_difference(o, first, curvature, a, b, c))
