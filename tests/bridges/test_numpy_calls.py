"""Functions of NumPy and SciPy in functions for NumPy: their values are NumPy's."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import numpy_models
from support.numpy_running import declared, interpreted, same

import staticgrad as sg
from staticgrad.bridges.numpy.distributions import DISTRIBUTIONS

scipy = pytest.importorskip("scipy")
from scipy import integrate, linalg, signal, special, stats  # noqa: E402

RNG = np.random.default_rng(0)
X, Y, M, Q = RNG.normal(size=7), RNG.normal(size=7), RNG.normal(size=(4, 5)), RNG.normal(size=(4, 4))
S = RNG.uniform(0.2, 0.9, 6)


def inserted(x: Any, m: Any) -> Any:
    n = m.copy()
    np.put_along_axis(n, np.array([[0], [1], [2], [3]]), 0.0, 1)
    np.fill_diagonal(n, x[0])
    np.copyto(n[3], x[:5])
    np.putmask(n[2], n[2] > 0, 7.0)
    return n, np.insert(x, 2, 9.0), np.delete(x, [1, 2]), np.append(m, x), np.resize(x, (2, 3))


def into_arrays_by_place(x: Any, m: Any) -> Any:
    a, b, c, d = np.empty(7), np.empty(()), np.empty(5), np.zeros((4, 5))
    np.cumsum(x, 0, None, a)
    np.mean(x, out=b)
    np.max(m, 0, c)
    np.clip(m, -0.5, 0.5, d)
    np.round(d, 1, d)
    return a, b, c, d


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "integrals": (lambda a, b: (
        np.trapezoid(a, dx=0.1), np.trapezoid(a, np.cumsum(b**2)), integrate.simpson(a, dx=0.2),
        integrate.simpson(a[:6], dx=0.2), integrate.trapezoid(a)), (X, Y)),
    "averages": (lambda a, m: (
        np.average(a, weights=a**2), np.average(m, 0, a[:4]), np.cov(m), np.cov(a, a[::-1]), np.corrcoef(m),
        np.median(m, axis=1), np.percentile(m, [25, 50], axis=0), np.quantile(m, 0.3, method="lower"),
        np.percentile(a, 90)), (X, M)),
    "polynomials": (lambda a, b: (
        np.polyval(a, b), np.vander(a, 4), np.vander(a, 4, increasing=True), np.polyfit(a, a**2, 2), np.polyder(a),
        np.polyint(a), np.polyadd(a, b), np.poly(a)), (X, S)),
    "differences": (lambda a, m: (
        np.ediff1d(a, to_end=2.0), np.gradient(m), np.gradient(a, 0.3, edge_order=2), np.diff(m, axis=0),
        np.diff(m, n=2, axis=1, prepend=0.0), np.gradient(a, np.cumsum(a**2)), np.unwrap(a)), (X, M)),
    "interpolation": (lambda a, b: (
        np.interp(a, np.arange(7.0) / 3, b), np.interp(0.7, [0, 1, 2], b[:3]), np.interp(b, [0.0, 1], [1.0, 2], 5, 6),
        np.searchsorted([0.0, 1.0], b), np.digitize(b, [0.0, 1.0])), (S, X)),
    "nan": (lambda a, m: (
        np.nan_to_num(np.log(a)), np.nansum(np.log(m), axis=1), np.nanmean(np.log(a)), np.nanvar(np.log(a)),
        np.nanstd(np.log(a)), np.nanmax(np.log(a)), np.nanmin(np.log(a)), np.nanprod(np.log(a))), (X, M)),
    "closeness": (lambda a, b: (
        np.isclose(a, b), np.allclose(a, b), np.array_equal(a, a), np.any(a > 1), np.all(a > -9), (a > 1).sum(),
        np.count_nonzero(a > 0)), (X, X + 1e-9)),
    "choices": (lambda a, m: (
        np.piecewise(a, [a < 0, a >= 0], [lambda v: v**2, 3.0]), np.choose(np.array([0, 1, 0]), [a[:3], a[3:6]]),
        np.select([a < 0], [a], 1.0), np.take(a, [8, -1], mode="wrap"), np.where(a > 0, a, 0),
        m[np.ix_([0, 2], [1, 3])],
        m[np.triu_indices(4, 1)], np.clip(a, None, 0.5), a.clip(0.1), np.round(a, 1)), (X, M)),
    "sorting": (lambda a, m: (
        np.sort(m, axis=0), np.argsort(m, axis=1), np.argmax(m, axis=1), m.argmin(), np.partition(a, 2)[2],
        np.lexsort((a, a > 0)), a[np.argpartition(a, 2)[:3]].sum(), np.sort(a)[::-1]), (X, M)),
    "joins": (lambda a, m: (
        np.block([[m, m], [m, m]]), np.r_[a, 1.0, a], np.c_[a, a], np.stack([a, a * 2], 1), np.hstack([a, 1.0]),
        np.vstack((a, a)), np.dstack((a, a)), np.column_stack((a, a)), np.concatenate([a, [1.0]]), np.tile(a, (2, 1)),
        np.repeat(a, np.arange(7)), np.meshgrid(a, a)[0], np.rot90(m), np.roll(m, 2, 1), np.rollaxis(m, 1),
        np.array([[a[0], 1], [2, a[1]]]), np.atleast_3d(a), np.lib.stride_tricks.sliding_window_view(a, 3)), (X, M)),
    "writes": (inserted, (X, M)),
    "splits": (lambda m: (
        np.split(m, 2), np.hsplit(m, [2]), np.array_split(m, 3, axis=1), np.dsplit(m[..., None], 1)),
        (M,)),
    "pads": (lambda a, m: (
        np.pad(a, 2, constant_values=3), np.pad(m, ((1, 0), (2, 1)), mode="edge"), np.pad(a, 3, mode="symmetric"),
        np.pad(a, 2, mode="wrap"), np.diag(a, 1), np.diag(m), np.diagflat(a[:2]), np.tri(4) * m[:, :4]), (X, M)),
    "products": (lambda a, b: (
        np.dot(a, b), np.vdot(a, b), np.inner(a, b), np.outer(a[0], b[0]), np.tensordot(a, b, axes=([0], [1])),
        np.einsum("ij->j", a), np.einsum("ij,kj", a, b), np.einsum("...j,j", a, b[0]), np.kron(a, b),
        np.cross(a[0, :3], b[0, :3]), np.matmul(a, b[0]), a @ b, np.multiply.outer(a[0], b[0])), (Q, Q.T + 1)),
    "cumulation": (lambda a, m: (
        np.cumsum(m), np.cumsum(m, 1), m.cumprod(axis=0), np.logaddexp.accumulate(a), np.subtract.reduce(a),
        np.add.reduce(m), np.maximum.reduce(m, axis=1, keepdims=True), np.hypot.reduce(m, axis=0),
        np.minimum.accumulate(m, axis=1), np.multiply.accumulate(a)), (X, M)),
    "reductions": (lambda m: (
        m.sum(axis=(0, 1)), m.mean(0), np.sum(m, axis=1, keepdims=True), m.max(axis=-1), m.std(ddof=1), np.ptp(m, 0),
        np.sum(m, where=m > 0), m.any(), m.prod(1), np.var(m, axis=0, ddof=1), np.sum([m[0, 0], 2 * m[0, 1]])), (M,)),
    "signals": (lambda a, s: (
        np.convolve(a, s), np.convolve(a, s[:3], "valid"), np.correlate(a, s[:3], "same"), a * np.hamming(7),
        signal.lfilter([1.0, 0.3], [1, -0.5], a), signal.detrend(a, type="constant"), np.sinc(a), np.i0(a)), (X, S)),
    "counting": (lambda a: (
        np.bincount(np.array([0, 1, 1, 2, 3, 3, 0]), weights=a), np.histogram(np.arange(7.0), 3, weights=a)[0]),
        (X,)),
    "matrices": (lambda a, m: (
        np.linalg.inv(a), np.linalg.det(a), np.linalg.slogdet(a), np.linalg.solve(a, m), np.linalg.matrix_power(a, 3),
        np.linalg.multi_dot([a, a, m]), np.linalg.cond(a), np.linalg.lstsq(m.T, m[0], rcond=None)[0], np.linalg.pinv(m),
        np.abs(np.linalg.qr(a)[1]), np.linalg.svd(a, compute_uv=False), np.linalg.eigvalsh(a @ a.T),
        np.linalg.cholesky(a @ a.T + np.eye(4)), np.trace(a)), (Q, M)),
    "norms": (lambda a, m: (
        np.linalg.norm(m, axis=1), np.linalg.norm(m, 1), np.linalg.norm(m, np.inf), np.linalg.norm(m, "nuc"),
        np.linalg.norm(m, 2), np.linalg.norm(a, 3), np.linalg.norm(m, axis=1, keepdims=True), np.linalg.norm(a)),
        (X, M)),
    "scipy.linalg": (lambda a, m, x, y: (
        linalg.toeplitz(x), linalg.circulant(x), linalg.block_diag(a, m), linalg.expm(a),
        linalg.sqrtm(a @ a.T + np.eye(4)),
        linalg.solve_banded((1, 1), np.vstack([x, x + 5, x]), y), linalg.solve(a, m), linalg.det(a), linalg.inv(a),
        linalg.cholesky(a @ a.T + np.eye(4)), linalg.solve_triangular(np.triu(a), m), linalg.norm(a),
        linalg.cho_solve(linalg.cho_factor(a @ a.T + np.eye(4)), m), linalg.lu_solve(linalg.lu_factor(a), m),
        linalg.lu(a), linalg.solve_banded((2, 1), np.vstack([x, x + 9, x, x]), y), linalg.lstsq(m, a[0])[0],
        linalg.lstsq(m.T, x[:5])[1]),
        (Q, M, X, Y)),
    "special": (lambda s, a: (
        special.gammaln(s), special.erf(a), special.expit(a), special.beta(s, 2.0), special.gamma(a), special.psi(s),
        special.ndtri(s), special.betainc(2.0, 3.0, s), special.gammainc(2.0, s), special.xlogy(s, s), special.entr(s),
        special.logit(s), special.huber(0.5, a), special.boxcox(s, 0.0), special.stdtr(3.0, a), special.exprel(a),
        special.comb(s + 4, s), special.factorial(s), special.polygamma(1, s), special.multigammaln(s + 3, 2),
        special.log_ndtr(a), special.cosm1(a), special.kl_div(s, s[::-1]), special.pseudo_huber(0.5, a)), (S, X)),
    "softmax": (lambda m: (
        special.logsumexp(m, axis=1), special.logsumexp(m, b=m**2), special.softmax(m), special.log_softmax(m, axis=1)),
        (M,)),
    "math": (lambda a: (
        math.exp(a[0]), math.log(a[0] ** 2, 3), math.hypot(a[0], a[1]), math.floor(a[1]) * 2, math.fsum(a),
        math.prod([a[0], a[1]]), math.dist([a[0]], [a[1]]), math.fmod(a[2], 0.3), math.atan2(a[0], a[1]),
        math.isclose(a[0], a[0]), math.copysign(1.0, a[0]), math.lgamma(a[0] ** 2), math.pow(2, a[0])), (X,)),
    "elementwise": (lambda a, b: (
        a**2, 2**a, abs(a) ** 0.5, a % 3, a // 0.3, divmod(a, 0.7), np.modf(a), np.fmod(a, 0.3), np.heaviside(a, 0.5),
        np.fmax(a, np.nan), np.cbrt(a), np.deg2rad(a), np.logaddexp2(a, b), np.sign(a), np.trunc(a), np.rint(a),
        np.ldexp(a, 2), np.add(a, b, dtype=np.float32), np.float_power(abs(a), b), np.nextafter(a, b), -a, +a,
        np.isfinite(a), np.signbit(a), np.logical_and(a > 0, b > 0), np.nan_to_num(a), np.degrees(a)), (X, Y)),
    "python": (lambda a: (
        functools.reduce(lambda p, q: p * q, a), list(itertools.accumulate(a))[-1], sum(a), list(zip(a, a)),
        max(a[0], 0.0), sorted([1, 2])[0] * a, np.vectorize(lambda v: v * v)(a), np.asarray(a, dtype=float), a.item(0),
        np.apply_along_axis(lambda v: v / v.sum(), 0, a), dict(zip("ab", a))["b"], a.astype("f4"), len(a) * a), (X,)),
    "results into arrays that are given by place": (into_arrays_by_place, (X, M)),
    "orders of elements": (lambda m: (m.flatten("F"), m.ravel("F"), m.reshape(2, 10, order="F")), (M,)),
    "elements that are chosen": (lambda m: (
        np.mean(m, where=m > 0), np.mean(m, axis=1, where=m > -5), m.prod(where=m > 0), np.any(m > 0, 0, where=m > 1)),
        (M,)),
    "axes that are kept": (lambda m: (
        np.ptp(m, axis=1, keepdims=True), np.average(m, axis=0, keepdims=True), np.median(m, (0, 1), keepdims=True),
        np.atleast_2d(m[0], m[1])[1], np.average(m, axis=1, weights=m[0] ** 2, returned=True)), (M,)),
    "named arguments of functions": (lambda m: (
        np.apply_along_axis(lambda v, scale: v * scale, 0, m, scale=2.0),
        np.piecewise(m, [m > 0], [lambda v, power: v**power, 1.0], power=2)), (M,)),
    "medians of what is not missing": (lambda m: (
        np.nanmedian(np.log(m), axis=1), np.nanmedian(np.log(m)), np.nanmedian(m, axis=(0, 1), keepdims=True),
        np.nanmedian(np.where(m > 0, m, np.nan)[:, :3], axis=0, keepdims=True), np.nanmedian(np.tile(m, (1, 200)), 1),
        np.nanmedian(1 / (m - m[:1]), axis=0), np.nanmedian(m.astype("f4")[0]), np.nanmedian(m.astype(int), 1)), (M,)),
    "infinities": (lambda a: (np.isposinf(1 / (a - a[0])), np.isneginf(-a), np.nansum(a), np.nanprod(a)), (X,)),
    "weighted polynomials": (lambda a: np.polyfit(a, a**3, 2, w=np.abs(a)), (X,)),
    "triangles": (lambda a: (
        np.linalg.eigh(np.triu(a), UPLO="U")[0], linalg.eigh(np.triu(a), lower=False)[0],
        linalg.lu_solve(linalg.lu_factor(a), a[0], trans=1), linalg.solve(a, a[0], transposed=True),
        linalg.solve_triangular(np.tril(a), a[0], trans=1, lower=True), np.linalg.cond(a, 1), np.linalg.cond(a, "fro"),
        np.cross(a[:3], a[:3] ** 2, 0, 0, 0)), (Q,)),
    "views": (lambda m: (
        np.flip(m, 1)[0, 1:], np.fliplr(m), np.rot90(m, 2), np.array_split(m, 3, 1)[1] * 2, np.flipud(m)[1:].T), (M,)),
    "multivariate": (lambda a, m: stats.multivariate_normal.logpdf(a[:4], np.zeros(4), m @ m.T), (X, M)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_numpy_and_scipy_have_their_values(name: str) -> None:
    fn, arguments = CALLS[name]
    with np.errstate(all="ignore"):
        same(fn, *arguments)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_have_scipy_s_values_and_slopes(name: str) -> None:
    d = DISTRIBUTIONS[name]
    shapes = [np.float64(value) for value, _ in zip((2.5, 1.5), d.shapes)]
    x = np.array([0.3, 0.7, 1.6, 2.5]) if not d.discrete else np.array([0.0, 1.0, 2.0, 3.0])
    if name in ("binom", "bernoulli", "geom"):
        shapes = [np.float64(5.0)] * (name == "binom") + [np.float64(0.3)]
    methods = ["logpmf", "pmf"] if d.discrete else ["logpdf", "pdf"]
    methods += (
        ["cdf", "logcdf"] * (d.cdf is not None) + ["sf", "logsf"] * (d.sf is not None) + ["ppf"] * (d.ppf is not None)
    )
    real = getattr(stats, name)

    def evaluated(x: Any, loc: Any, scale: Any) -> Any:
        named = {"loc": loc} if d.discrete else {"loc": loc, "scale": scale}
        found = [
            getattr(real, method)(x / (4 if method in ("ppf", "isf") else 1), *shapes, **named) for method in methods
        ]
        frozen = getattr(real(*shapes, **named), methods[0])(x)
        return [*found, frozen]

    arguments = (x, 0.0 if d.discrete else -0.2, 1.2)
    with np.errstate(all="ignore"):
        same(evaluated, *arguments)
        results, xs = declared(evaluated, arguments)
        if not d.discrete:
            slope = sg.gradients(sg.sum(results[1]), [xs[0]])
            (found,) = interpreted(list(slope), xs, arguments)
            h = 1e-6
            differences = (evaluated(x + h, -0.2, 1.2)[1] - evaluated(x - h, -0.2, 1.2)[1]) / (2 * h)
            np.testing.assert_allclose(found, differences, rtol=1e-6, atol=1e-8)


def test_code_of_the_user_s_modules_is_traced() -> None:
    model = numpy_models.LargerModel(3.0)
    for fn, arguments in (
        (numpy_models.filled, (X,)), (numpy_models.squared, (X,)), (numpy_models.repeated, (X, 3)), (model, (1.5,)),
        (model.run, (1.5,)), (lambda x: numpy_models.LargerModel(x).run(x), (1.5,)), (np.sin, (X,)),
        (functools.partial(numpy_models.repeated, n=2), (X,)),
    ):  # fmt: skip
        fed = tuple(a for a in arguments if not isinstance(a, int))
        rest = arguments[len(fed) :]
        same(lambda *xs, fn=fn, rest=rest: fn(*xs, *rest), *fed)
    assert model.a == 3.0
    assert numpy_models.numpy is np


@pytest.mark.parametrize(("fn", "name"), [
    (lambda x: np.fft.rfft(x), "numpy.fft.rfft"),
    (lambda x: np.exp(1j * x).real, "multiply"),
    (lambda x: x.view(np.int64), ".view"),
    (lambda x: np.quantile(x, 0.3, method="weibull"), "numpy.quantile"),
    (lambda x: special.jv(1.0, x), "jv"),
    (lambda x: np.sum(x, initial=1.0), "numpy.sum"),
    (lambda x: np.linspace(x[0], 1.0, retstep=True)[0], "numpy.linspace"),
    (lambda x: linalg.eigh(x[:, None] * x, np.eye(6))[0], "scipy.linalg.eigh"),
    (lambda x: stats.norm.entropy(0, x), "scipy.stats.norm.entropy"),
    (lambda x: stats.gamma.ppf(x, 2.0), "scipy.stats.gamma.ppf"),
])  # fmt: skip
def test_functions_without_a_converter_are_refused_by_name(fn: Callable[..., Any], name: str) -> None:
    with pytest.raises(sg.UnsupportedError) as caught:
        declared(fn, (S,))
    assert name in [op.name for op in caught.value.ops]
    assert {line.file for op in caught.value.ops for line in op.sources} == {__file__}
