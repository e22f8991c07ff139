"""The methods of tensors: NumPy's where an array has one, else the function of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import staticgrad as sg

X = np.array([[0.5, -0.25, 0.75], [0.125, 0.9, -0.6]])

OF_ARRAYS: list[Callable[[Any], Any]] = [
    lambda x: x.sum(0), lambda x: x.mean(1), lambda x: x.max(), lambda x: x.argmin(1), lambda x: x.round(),
    lambda x: x.transpose(), lambda x: x.transpose(1, 0), lambda x: x.transpose((1, 0)), lambda x: x.ravel(),
    lambda x: x.flatten(), lambda x: x.cumsum(), lambda x: x.cumsum(1), lambda x: x.cumprod(0), lambda x: x.cumprod(),
    lambda x: x.argsort(0), lambda x: x.argsort(), lambda x: x.clip(-0.5, 0.5), lambda x: x.dot(x.T),
    lambda x: x.dot(x[0]), lambda x: x.swapaxes(0, 1), lambda x: x.repeat(2, 1), lambda x: x.repeat(3),
    lambda x: x.diagonal(), lambda x: x.diagonal(1), lambda x: x.trace(), lambda x: x.copy(), lambda x: x.squeeze(),
    lambda x: x.take([1, 0], axis=1), lambda x: x.reshape(3, 2), lambda x: x.prod(1), lambda x: x.std(),
]  # fmt: skip


def test_methods_of_arrays_mean_the_same(g: sg.Graph) -> None:
    results = sg.Session(g).run([of(sg.constant(X)) for of in OF_ARRAYS])
    for got, of in zip(results, OF_ARRAYS, strict=True):
        want = of(X)
        assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.shape(want))
        np.testing.assert_allclose(got, want, rtol=1e-12)


UNARY = "abs acos asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor isfinite isinf isnan"
UNARY += " lgamma reciprocal round sign sin sinh square tan tanh trunc"
POSITIVE = "log log10 log1p log2 rsqrt sqrt"
SCIPY = {"digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "gammaln"}


def test_elementwise_functions_are_methods(g: sg.Graph) -> None:
    names = [*UNARY.split(), *POSITIVE.split()]
    values = [np.abs(X) if name in POSITIVE.split() else X for name in names]
    results = sg.Session(g).run([getattr(sg.constant(v), name)() for v, name in zip(values, names, strict=True)])
    for name, value, got in zip(names, values, results, strict=True):
        of = getattr(scipy.special, SCIPY[name]) if name in SCIPY else getattr(np, name, None)
        want = 1 / np.sqrt(value) if of is None else of(value)
        np.testing.assert_allclose(got, want, rtol=1e-9, err_msg=name)
    assert sg.Session(g).run(sg.constant(2.0).acosh()) == np.arccosh(np.float32(2))


def test_methods_are_the_functions_of_their_names(g: sg.Graph) -> None:
    x = sg.constant(X)
    pairs: list[tuple[sg.Tensor, sg.Tensor]] = [
        (x.sort(0), sg.sort(x, 0)), (x.sort(descending=True), sg.sort(x, descending=True)),
        (x.cumulative_sum(axis=0), sg.cumulative_sum(x, axis=0)), (x.relu(), sg.nn.relu(x)),
        (x.sigmoid(), sg.nn.sigmoid(x)), (x.softmax(-1), sg.nn.softmax(x, -1)), (x.matmul(x.T), sg.matmul(x, x.T)),
        (x.log_softmax(0), sg.nn.log_softmax(x, 0)), (x.maximum(0.1), sg.maximum(x, 0.1)),
        (x.flip(0), sg.flip(x, axis=0)),
        (x.topk(2)[0], sg.topk(x, 2)[0]), (x.topk(1, 0, largest=False)[1], sg.topk(x, 1, 0, False)[1]),
        (x.split(3, 1)[2], sg.split(x, 3, 1)[2]), (x.expand_dims(axis=1), sg.expand_dims(x, axis=1)),
        (x.broadcast_to((4, 2, 3)), sg.broadcast_to(x, (4, 2, 3))), (x.tril(), sg.tril(x)),
        (x.roll(1, 0), sg.roll(x, 1, 0)),
        (x.tile((2,)), sg.tile(x, (2,))), (x.moveaxis(0, 1), sg.moveaxis(x, 0, 1)),
        (x.count_nonzero(), sg.count_nonzero(x)),
    ]  # fmt: skip
    for got, want in sg.Session(g).run(pairs):
        np.testing.assert_array_equal(got, want)
    assert sg.Session(g).run(x).tolist() == X.tolist()  # sort, too, gives a new tensor


def test_methods_that_mean_something_else_for_arrays_of_many_axes_are_refused(g: sg.Graph) -> None:
    x = sg.zeros((2, 3, 3))
    for wrong in (x.diagonal, x.trace, lambda: x.dot(x), lambda: x[0].dot(2.0)):
        with pytest.raises(sg.GraphError, match=r"use .*sg\."):
            wrong()  # type: ignore[no-untyped-call]
