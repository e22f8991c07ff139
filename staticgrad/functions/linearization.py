"""``sg.linearize`` and ``sg.ggn_product``: products with Jacobians of declared tensors.

Input: tensors of a graph. Output: products, declared as ``jvp`` and ``gradients`` declare them, so that they read
values of the forward that is there already, whatever number of vectors they are of; nests in, nests out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staticgrad.base import nests
from staticgrad.base.errors import GradientError
from staticgrad.compiler.autodiff.forward import jvp
from staticgrad.compiler.autodiff.reverse import gradients, tensor_list


def linearize(y: Any, x: Any) -> Callable[[Any], Any]:
    """The derivative of ``y`` by ``x``, as a function of tangents: v gives J·v.

    Each call declares the product with one tangent. All of them read the values of the one forward; ``sg.vmap`` of the
    function takes many tangents at once. It is linear, so ``sg.gradients`` by a tangent is the transposed product.

    Args:
        y: a floating tensor or a nest of them.
        x: a floating tensor or a nest of them.

    Returns:
        A function of a nest like ``x``, of tensors or arrays of its shapes (None is zero), which gives a nest like
        ``y``.

    Raises:
        GradientError: a y or an x is not floating, or an op without a derivative is on the way (in a call).
        GraphError: a tangent has another structure or shape than ``x`` (in a call).

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> along = sg.linearize({"square": x**2, "product": x[0] * x[1]}, x)
        >>> sg.Session().run([along([1.0, 0.0])["product"], sg.vmap(along)(np.eye(2, dtype=np.float32))["square"]])
        [array(2., dtype=float32), array([[2., 0.],
               [0., 4.]], dtype=float32)]
    """
    ys, xs = tensor_list(nests.flatten(y), "linearize: y"), tensor_list(nests.flatten(x), "linearize: x")

    def along(tangents: Any) -> Any:
        return nests.pack(y, jvp(ys, xs, _like(x, tangents)))

    return along


def ggn_product(loss: Any, outputs: Any, x: Any, v: Any) -> Any:
    """The product of the generalized Gauss-Newton matrix Jᵀ·H·J with a vector ``v``, at about the cost of three
    gradients.

    J is the derivative of ``outputs``, those of a model, by its parameters ``x``; H is the Hessian of ``loss`` by the
    outputs. The matrix is positive semidefinite where the loss is convex in the outputs; of half a sum of squares it is
    JᵀJ, of the negative log likelihood of an exponential family Fisher's information.

    Args:
        loss: a floating tensor of shape (), made of ``outputs``.
        outputs: a floating tensor that ``loss`` depends on, or a nest of them.
        x: a floating tensor or a nest of them.
        v: like ``x``: a tensor or array of its shape, or a nest of them; None is zero.

    Returns:
        A tensor of the shape of ``x``, or a nest of them.

    Raises:
        GradientError: the loss is no number, something is not floating, has no derivative, or does not depend on the
            outputs.
        GraphError: x and v are other nests, or a part of v has another shape.

    Source: Schraudolph, Fast Curvature Matrix-Vector Products for Second-Order Gradient Descent (2002).

    Example:
        >>> x = sg.constant([1.0, 2.0])
        >>> residuals = sg.stack([x[0] * x[1], x[0] - x[1]])
        >>> sg.Session().run(sg.ggn_product(0.5 * sg.sum(residuals**2), residuals, x, [1.0, 0.0]))
        array([5., 1.], dtype=float32)
    """
    losses = tensor_list(loss, "ggn_product: loss")
    if len(losses) != 1 or losses[0].shape != ():
        shown = ", ".join(str(each.type) for each in losses)
        raise GradientError(f"ggn_product: loss: expected one number, actual {shown}", source=losses[0].source)
    zs, xs = tensor_list(nests.flatten(outputs), "ggn_product: outputs"), tensor_list(nests.flatten(x), "x")
    changes = jvp(zs, xs, _like(x, v))
    slopes = gradients(losses[0], zs, unconnected_gradients="error")
    return nests.pack(x, gradients(zs, xs, jvp(slopes, zs, changes), unconnected_gradients="zero"))


def _like(x: Any, given: Any) -> list[Any]:
    """The parts of a nest that has the structure of ``x``."""
    parts: list[Any] = []
    nests.map(lambda _, part: parts.append(part), x, given)
    return parts


__all__ = ["ggn_product", "linearize"]
