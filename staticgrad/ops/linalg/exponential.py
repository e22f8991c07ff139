"""The exponential of square matrices, by scaling and squaring.

exp(A) = r(A/2ˢ)^(2ˢ), with r Padé's approximant, whose degree is fixed, and s of each matrix such that its 1-norm over
2ˢ is at most a bound θ: N. Higham, The scaling and squaring method for the matrix exponential revisited, SIAM J. Matrix
Anal. Appl. 26 (2005), whose θ and coefficients these are. The derivative in a direction E is a block of another
exponential (R. Mathias 1996; N. Higham, Functions of Matrices, 2008, theorem 3.6), so that derivatives of any order are
exponentials:

    exp([A E])  =  [exp(A)  D exp(A)[E]]
       ([0 A])     [0       exp(A)     ]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from staticgrad.base.types import FLOATS, float64
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import Array, Case, Namespace, NoAttributes, Op, Primal, public, register
from staticgrad.ops.batch_rules import last_axes
from staticgrad.ops.declare import declare
from staticgrad.ops.linalg.elimination import of_known_size, system_solution
from staticgrad.ops.linalg.square import UNIT, check_square, square_type, transpose_of

# By the dtype's precision: the degree, and the norm up to which its relative error is below half a unit of that.
DEGREES = {float64: (13, 5.371920351148152), None: (7, 3.925724783138660)}


def _coefficients(degree: int) -> list[float]:
    """The coefficients of Padé's numerator by rising powers, integers without a common factor; the denominator's signs
    alternate."""
    whole = [
        math.factorial(2 * degree - k) // (math.factorial(degree - k) * math.factorial(k)) * math.factorial(degree)
        for k in range(degree + 1)
    ]
    shared = math.gcd(*whole)
    return [float(c // shared) for c in whole]


def _approximant(o: Namespace, a: Tensor, degree: int) -> Tensor:
    """r(A): its even powers by Horner's rule in A², or for the degree 13 in A⁶ of cubics in A²."""
    b = _coefficients(degree)
    one = o.eye(a.shape[-1], dtype=a.dtype)
    squares = [one, o.matmul(a, a)]
    while len(squares) <= 3:
        squares.append(o.matmul(squares[-1], squares[1]))

    def polynomial(terms: Sequence[float]) -> Tensor:
        """Σ terms[k]·A²ᵏ."""
        low = [o.multiply(x, c) for x, c in zip(squares, terms[:4], strict=False)]
        total = low[0]
        for x in low[1:]:
            total = o.add(total, x)
        return o.add(total, o.matmul(squares[3], _without_one(terms[4:]))) if terms[4:] else total

    def _without_one(terms: Sequence[float]) -> Tensor:
        """Σ terms[k]·A²ᵏ⁺², at most three."""
        total = o.multiply(squares[1], terms[0])
        for x, c in zip(squares[2:], terms[1:], strict=False):
            total = o.add(total, o.multiply(x, c))
        return total

    odd, even = o.matmul(a, polynomial(b[1::2])), polynomial(b[::2])
    return system_solution(o.subtract(even, odd), o.add(even, odd))


def _expand_expm(o: Namespace, node: Primal[NoAttributes]) -> Sequence[Tensor]:
    a = node.inputs[0]
    if a.shape[-1] == 0:
        return [a]
    degree, bound = DEGREES.get(a.dtype, DEGREES[None])
    ratio = o.divide(o.matrix_norm(a, ord=1, keepdims=True), bound)
    halvings = o.maximum(o.ceil(o.log2(ratio)), 0)
    halvings = o.where(o.isfinite(ratio), halvings, 0)  # infinities and NaN come through by themselves
    x = _approximant(o, o.multiply(a, o.exp2(o.negative(halvings))), degree)

    def squared(state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        left, x = state
        return o.subtract(left, 1), o.where(o.greater(left, 0), o.matmul(x, x), x)

    return [o.while_loop(lambda state: o.any(o.greater(state[0], 0)), squared, (halvings, x))[1]]


def _along(o: Namespace, a: Tensor, e: Tensor) -> Tensor:
    """The derivative of exp(A) in a direction, which is brought to the scale of A: it shall not ask for squarings."""
    n = a.shape[-1]
    if n == 0:
        return e
    norms = [o.matrix_norm(o.stop_gradient(x), ord=1, keepdims=True) for x in (e, a)]
    scale = o.exp2(o.floor(o.log2(o.divide(norms[0], o.maximum(norms[1], 1)))))
    scale = o.where(o.logical_and(o.isfinite(scale), o.greater(scale, 0)), scale, 1)
    zero = o.zeros_like(a)
    above, below = o.concat([a, o.divide(e, scale)], axis=-1), o.concat([zero, a], axis=-1)
    return o.multiply(declare(EXPM, (o.concat([above, below], axis=-2),))[..., :n, n:], scale)


def _expm_reference(attrs: NoAttributes, a: Array) -> Array:
    """Each by Taylor's series of a small matrix, squared."""
    wide, n = a.astype(np.float64), a.shape[-1]
    result = np.empty(a.shape)
    for place in np.ndindex(a.shape[:-2]):
        one = wide[place]
        norm = float(np.max(np.sum(np.abs(one), axis=0), initial=0.0))
        halvings = max(0, math.ceil(math.log2(norm)) + 3) if 0 < norm < math.inf else 0
        total = term = np.eye(n)
        for k in range(1, 20):
            term = term @ (one / 2.0**halvings) / k
            total = total + term
        for _ in range(halvings):
            total = total @ total
        result[place] = total
    return result.astype(a.dtype)


EXPM = register(
    Op(
        "expm",
        "Exponentials of square matrices.",
        infer=square_type("expm"),
        reference=_expm_reference,
        expand=_expand_expm,
        vjp=lambda o, node, ct: [_along(o, transpose_of(node.inputs[0]), ct)],
        jvp=lambda o, node, t: [_along(o, node.inputs[0], t)],
        dtypes=FLOATS,
        cases=(
            *(Case((shape,)) for shape in ((3, 3), (1, 1), (2, 4, 4), (0, 3, 3), (2, 0, 0))),
            Case(((2, 3, 3),), ranges=(UNIT,), prepared=lambda x: np.asarray(x * [[[1e-3]], [[7.0]]])),
            Case(((9, 9),), ranges=(UNIT,)),
        ),
        grad_name="LinalgMatrixExp",
        tolerance=100.0,
        batch=last_axes,
    )
)


@public
def expm(x: TensorLike) -> Tensor:
    """The exponentials Σ xᵏ/k! of square matrices, with derivatives of any order.

    Args:
        x: (…, n, n), n known when declared.

    Raises:
        GraphError: no square matrices of a size known when declared.

    Source: N. Higham, The scaling and squaring method for the matrix exponential revisited (2005).

    Example:
        >>> sg.Session().run(sg.linalg.expm([[0.0, np.pi / 2], [-np.pi / 2, 0.0]])).round(4) + 0.0
        array([[ 0.,  1.],
               [-1.,  0.]], dtype=float32)
    """
    a = of_known_size("expm", x)
    check_square("expm", a.type)
    return declare(EXPM, (a,))
