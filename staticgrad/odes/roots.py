"""A root between two ends: where on a step an event happens.

Input: a function of the part θ of a step whose signs at 0 and 1 differ. Output: θ to the last bits, by Chandrupatla's
method (A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function, 1997): the inverse
quadratic through three points where these are monotone enough, else the middle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staticgrad.graph.graph import Tensor
from staticgrad.graph.optable import FUNCTIONS as O

TRIES = 100


def bracketed(fn: Callable[[Tensor], Tensor], first: Tensor, dtype: np.dtype) -> Tensor:
    """The root of ``fn`` between 0, where it is ``first``, and 1, detached."""
    info: Any = np.finfo(dtype)
    least = 4 * float(info.eps)

    def value(x: Tensor) -> Tensor:
        return O.astype(fn(x), dtype)

    def turn(s: dict[str, Tensor]) -> dict[str, Tensor]:
        x = s["a"] + s["part"] * (s["b"] - s["a"])
        f = value(x)
        same = O.signbit(f) == O.signbit(s["fa"])
        c, fc = O.where(same, s["a"], s["b"]), O.where(same, s["fa"], s["fb"])
        b, fb = O.where(same, s["b"], s["a"]), O.where(same, s["fb"], s["fa"])
        a, fa = x, f
        width = O.abs(b - a)
        near = least / O.maximum(width, least)
        xi, phi = (a - b) / O.where(c == b, 1.0, c - b), (fa - fb) / O.where(fc == fb, 1.0, fc - fb)
        curved = O.logical_and(O.square(phi) < xi, O.square(1 - phi) < 1 - xi)
        denominators = (fb - fa) * (fb - fc) * (fc - fa)
        quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        usable = O.logical_and(curved, O.logical_and(denominators != 0, O.isfinite(quadratic)))
        part = O.clip(O.where(usable, quadratic, 0.5), O.minimum(near, 0.5), O.maximum(1 - near, 0.5))
        done = O.logical_or(width <= least, fa == 0)
        return {"a": a, "fa": fa, "b": b, "fb": fb, "part": part, "done": done, "tries": s["tries"] + 1}

    zero, one = O.zeros((), dtype=dtype), O.ones((), dtype=dtype)
    begun = {
        "a": one, "fa": O.stop_gradient(value(one)), "b": zero, "fb": O.astype(first, dtype), "part": one * 0.5,
        "done": False, "tries": 0,
    }  # fmt: skip
    last = O.while_loop(lambda s: O.logical_and(O.logical_not(s["done"]), s["tries"] < TRIES), turn, begun)
    nearer = O.abs(last["fa"]) <= O.abs(last["fb"])
    return O.stop_gradient(O.where(nearer, last["a"], last["b"]))
