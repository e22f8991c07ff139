"""Least squares of any rank, by singular values: ``lstsq``."""

from __future__ import annotations

from staticgrad.base.errors import GraphError
from staticgrad.base.types import number
from staticgrad.graph.graph import Tensor
from staticgrad.graph.lifting import TensorLike
from staticgrad.graph.optable import FUNCTIONS, public
from staticgrad.graph.results import LstsqResult
from staticgrad.ops.contraction import require_equal
from staticgrad.ops.declare import FLOAT, accepted, shown_as
from staticgrad.ops.elementwise.copies import rounded, widened
from staticgrad.ops.linalg.matrices import common_batch, known_sizes, matrix


@public
@shown_as("LinalgLstsqBackward0")
def lstsq(a: TensorLike, b: TensorLike, rcond: float | None = None) -> LstsqResult:
    """The shortest x with the least ‖a·x − b‖, as ``np.linalg.lstsq``, for matrices of any shape and rank.

    Derivatives are right where the rank does not change; those of the rank and of the singular values are none.

    Args:
        a: (…, m, n), m and n known when declared.
        b: (m,) or (…, m, k); batches broadcast.
        rcond: singular values up to so much of the largest count as zero; default: max(m, n) times the machine's
            precision.

    Returns:
        A named tuple: ``solution`` (…, n, k) or (…, n); ``residuals``, the sums of squares of b − a·x, (…, k) or (…),
        whatever the rank; ``rank`` (…); ``singular_values`` (…, min(m, n)).

    Raises:
        GraphError: no matrices of sizes known when declared, or sizes that do not agree.

    Example:
        >>> x, residuals, rank, _ = sg.linalg.lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))
        >>> sg.Session().run([x, residuals, rank])
        [array([2.]), array(2.), array(1)]
    """
    o, what = FUNCTIONS, "lstsq"
    given = accepted(what, FLOAT, a, b)
    x1, x2 = widened(given)
    known_sizes(what, matrix(what, x1))
    vector = x2.ndim == 1
    if x2.ndim == 0:
        raise GraphError(f"{what}: expected a right side (m,) or (…, m, k), actual {x2.name!r} {x2.type}")
    x2 = o.expand_dims(x2, -1) if vector else x2
    require_equal(x1.shape[-2], x2.shape[-2], what, f"rows of the right side {x2.type} for {x1.type}")
    x1, x2 = common_batch(what, x1, x2)
    rtol = rcond if rcond is None else number(rcond, f"{what}: rcond")
    solution = o.matmul(o.pinv(x1, rtol=rtol), x2)
    residuals = o.sum(o.square(o.subtract(x2, o.matmul(x1, solution))), axis=-2)
    values = o.stop_gradient(o.svdvals(x1))
    results: list[Tensor] = [o.squeeze(solution, -1), o.squeeze(residuals, -1)] if vector else [solution, residuals]
    solution, residuals, values = rounded([*results, values], [given[0]] * 3)
    return LstsqResult(solution, residuals, o.matrix_rank(x1, rtol=rtol), values)
