"""Forty functions as people write them for NumPy and SciPy, each with arguments: pricers, filters, solvers, physics,
statistics, linear algebra, signals.

``CASES`` has a function and its arguments by name. Functions give one number. None knows of anything but NumPy.
"""

import math
from dataclasses import dataclass
from functools import partial
from math import erf as error_function

import numpy as np
from numpy import exp, log, sqrt, zeros
from scipy import linalg, special, stats

N_STEPS = 8
WEIGHTS = np.array([0.2, 0.5, 0.3])
CASES = {}


def case(*arguments):
    def enter(function):
        CASES[function.__name__] = function, arguments
        return function

    return enter


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def spread(*shape, seed=1):
    return np.random.default_rng(seed).uniform(0.5, 1.5, size=shape)


# -- pricers ----------------------------------------------------------------------------------------------------------


@case(np.linspace(80.0, 120.0, 5), 100.0, 1.0, 0.02, 0.2)
def black_scholes(spot, strike, maturity, rate, vol):
    from scipy.stats import norm

    d1 = (np.log(spot / strike) + (rate + 0.5 * vol * vol) * maturity) / (vol * np.sqrt(maturity))
    d2 = d1 - vol * np.sqrt(maturity)
    return (spot * norm.cdf(d1) - strike * np.exp(-rate * maturity) * norm.cdf(d2)).mean()


@case(100.0, 95.0, 0.5, 0.03, 0.25)
def black_scholes_of_numbers(spot, strike, maturity, rate, vol):
    def cdf(x):
        return 0.5 * (1.0 + error_function(x / math.sqrt(2.0)))

    d1 = (math.log(spot / strike) + (rate + vol**2 / 2) * maturity) / (vol * math.sqrt(maturity))
    return spot * cdf(d1) - strike * math.exp(-rate * maturity) * cdf(d1 - vol * math.sqrt(maturity))


@case(100.0, 0.2, normals(6, 16))
def asian_option(spot, vol, z):
    path = [spot]
    for i in range(z.shape[0]):
        path.append(path[-1] * np.exp(-0.5 * vol * vol / 12 + vol * np.sqrt(1 / 12) * z[i]))
    return np.maximum(np.mean(np.stack(path[1:]), axis=0) - 100, 0).mean()


@case(101.0, 100.0, 0.05, 0.3)
def binomial_american_put(spot, strike, rate, vol):
    dt = 1.0 / N_STEPS
    up = np.exp(vol * np.sqrt(dt))
    p = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    values = np.empty(N_STEPS + 1)
    for j in range(N_STEPS + 1):
        values[j] = max(strike - spot * up ** (2 * j - N_STEPS), 0.0)
    for i in range(N_STEPS - 1, -1, -1):
        prices = spot * up ** (2.0 * np.arange(i + 1) - i)
        values[: i + 1] = np.exp(-rate * dt) * (p * values[1 : i + 2] + (1 - p) * values[: i + 1])
        values[: i + 1] = np.maximum(values[: i + 1], strike - prices)
    return values[0]


@case(np.full(6, 0.05), np.full(6, 0.2), normals(3, 4))
def libor_in_place(rates, vols, z):
    forwards = np.repeat(rates[:, None], z.shape[1], 1)
    for n in range(3):
        shock, vol, rest = 0.5 * z[n], vols[: 6 - n - 1, None], forwards[n + 1 :]
        drift = np.cumsum(0.25 * vol * rest / (1 + 0.25 * rest), 0)
        forwards[n + 1 :] = rest * np.exp(0.25 * vol * drift + vol * (shock - 0.125 * vol))
    bonds = np.cumprod(1 / (1 + 0.25 * forwards[3:]), 0)
    payoff = np.maximum(bonds[-1] + 0.05 * np.cumsum(bonds, 0)[-1] - 0.9, 0)
    return (payoff / np.prod(1 + 0.25 * forwards[:3], 0)).mean()


@case(np.array([100.0, 101.0, 103.0]), 0.2, 0.01)
def barrier_with_mask(spot, vol, rate):
    z = np.linspace(-2, 2, 9)
    end = spot[:, None] * np.exp((rate - vol**2 / 2) + vol * z)
    payoff = np.zeros_like(end)
    payoff[...] = np.maximum(end - 100.0, 0.0)
    payoff[end > 150.0] = 0.0
    return payoff.mean()


@case(np.array([0.01, 0.012, 0.015, 0.02]), np.array([0.5, 1.2, 2.9]))
def curve_by_interpolation(zeros_, times):
    rates = np.interp(times, [0.25, 1.0, 2.0, 3.0], zeros_)
    return (np.exp(-rates * times) * 100.0).sum()


@case(0.04, 1.5, 0.04, 0.3, normals(5, 8), normals(5, 8, seed=3))
def heston_full_truncation(v0, kappa, theta, xi, z, w):
    dt, x, v = 1 / 5, np.zeros(8), np.full(8, v0)
    for i in range(5):
        positive = np.clip(v, 0.0, None)
        x -= 0.5 * positive * dt
        x += np.sqrt(positive * dt + 1e-12) * z[i]
        v += kappa * (theta - positive) * dt + xi * np.sqrt(positive * dt + 1e-12) * w[i]
    return np.maximum(np.exp(x) - 1, 0).mean()


# -- filters and statistics of time series ----------------------------------------------------------------------------


@case(normals(12), 0.3)
def exponential_smoothing(x, alpha):
    out = np.empty_like(x)
    out[0] = x[0]
    for t in range(1, len(x)):
        out[t] = alpha * x[t] + (1 - alpha) * out[t - 1]
    return (out**2).sum()


@case(normals(10), 0.01, 0.1, 0.8)
def garch_log_likelihood(returns, omega, alpha, beta):
    variance = np.zeros(len(returns))
    variance[0] = np.var(returns)
    for t in range(1, len(returns)):
        variance[t] = omega + alpha * returns[t - 1] ** 2 + beta * variance[t - 1]
    return -0.5 * np.sum(np.log(2 * np.pi * variance) + returns**2 / variance)


@case(normals(8), 0.5, 0.2)
def kalman_filter_1d(y, q, r):
    mean, var, total = 0.0, 1.0, 0.0
    for value in y:
        var = var + q
        s = var + r
        total += -0.5 * (math.log(2 * math.pi) + np.log(s) + (value - mean) ** 2 / s)
        gain = var / s
        mean, var = mean + gain * (value - mean), (1 - gain) * var
    return total


@case(normals(6, 2), 0.1 * np.eye(2) + 0.05, np.array([[1.0, 0.1], [0.0, 1.0]]))
def kalman_filter(y, q, f):
    x, p, total = np.zeros(2), np.eye(2), 0.0
    for t in range(y.shape[0]):
        x, p = f @ x, f @ p @ f.T + q
        s = p + np.eye(2)
        error = y[t] - x
        total -= 0.5 * (np.linalg.slogdet(s)[1] + error @ np.linalg.solve(s, error))
        gain = p @ np.linalg.inv(s)
        x = x + gain @ error
        p = p - gain @ p
    return total


@case(normals(3, 4), np.abs(normals(3)) + 0.5)
def hidden_markov_forward(scores, start):
    log_a = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]]))
    alpha = np.log(start / start.sum()) + scores[:, 0]
    for t in range(1, scores.shape[1]):
        alpha = special.logsumexp(alpha[:, None] + log_a, axis=0) + scores[:, t]
    return special.logsumexp(alpha)


@case(normals(9, 3))
def correlation_energy(x):
    c = np.corrcoef(x, rowvar=False)
    return np.sum(np.tril(c, -1) ** 2) + np.trace(np.cov(x.T))


@case(normals(11))
def robust_scale(x):
    center = np.median(x)
    return np.percentile(np.abs(x - center), 75) + np.quantile(x, 0.1)


@case(normals(20), spread(20))
def weighted_regression(x, w):
    design = np.column_stack([np.ones(20), x, x**2])
    y = np.sin(x)
    beta = np.linalg.solve(design.T @ (w[:, None] * design), design.T @ (w * y))
    residual = y - design @ beta
    return np.average(residual**2, weights=w)


@case(spread(5), 1.3, 0.7)
def log_densities(x, a, s):
    total = stats.norm.logpdf(x, a, s).sum() + stats.lognorm.logpdf(x, s, scale=a).sum()
    total += stats.expon.logpdf(x, scale=s).sum() + stats.gamma.logpdf(x, a, scale=s).sum()
    total += stats.t(5.0, loc=a).logpdf(x).sum() + stats.beta.logpdf(x / 2, a, s).sum()
    return total + np.sum(stats.norm(a, s).ppf(x / 2)) + stats.laplace.cdf(x, a).sum()


@case(normals(6, 3), normals(3), 0.4)
def logistic_regression(x, beta, intercept):
    y = np.array([0, 1, 1, 0, 1, 0])
    eta = x.dot(beta) + intercept
    return np.mean(np.logaddexp(0, eta) - y * eta) + 0.01 * np.linalg.norm(beta) ** 2


@case(normals(7, 2), np.array([0.5, -0.2]), np.array([[1.2, 0.3], [0.3, 0.8]]))
def gaussian_density(x, mean, cov):
    factor = linalg.cholesky((cov + cov.T) / 2, lower=True)
    z = linalg.solve_triangular(factor, (x - mean).T, lower=True)
    log_det = 2 * np.log(np.diag(factor)).sum()
    return -0.5 * ((z**2).sum() + x.shape[0] * (log_det + x.shape[1] * np.log(2 * np.pi)))


@case(np.linspace(0.0, 1.0, 6), 0.3, 1.1)
def gaussian_process(x, scale, amplitude):
    y = np.sin(6 * x)
    k = amplitude**2 * np.exp(-0.5 * np.subtract.outer(x, x) ** 2 / scale**2) + 0.1 * np.eye(len(x))
    factor = linalg.cho_factor(k, lower=True)
    return 0.5 * y @ linalg.cho_solve(factor, y) + np.log(np.diagonal(np.linalg.cholesky(k))).sum()


@case(spread(4), spread(4, seed=5))
def divergence(p, q):
    p, q = p / p.sum(), q / q.sum()
    return special.rel_entr(p, q).sum() + special.entr(p).sum() + np.hypot(p, q).sum()


# -- solvers ----------------------------------------------------------------------------------------------------------


def lotka_volterra(state, a, b):
    x, y = state
    return np.array([a * x - b * x * y, b * x * y - y])


@case(np.array([1.0, 0.5]), 1.1, 0.4)
def runge_kutta(state, a, b):
    h, history = 0.1, np.zeros((N_STEPS + 1, 2))
    history[0] = state
    for n in range(N_STEPS):
        y = history[n]
        k1 = lotka_volterra(y, a, b)
        k2 = lotka_volterra(y + h / 2 * k1, a, b)
        k3 = lotka_volterra(y + h / 2 * k2, a, b)
        k4 = lotka_volterra(y + h * k3, a, b)
        history[n + 1] = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return history[-1].sum() + np.trapezoid(history[:, 0], dx=h)


@case(2.0)
def newton_root(a):
    x = 1.0
    for _ in range(6):
        x = x - (x**3 - a) / (3 * x**2)
    return x


@case(np.sin(np.linspace(0, np.pi, 9)), 0.2)
def heat_explicit(u, r):
    u = u.copy()
    for _ in range(4):
        u[1:-1] += r * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[-1] = 0.0
    return (u**2).sum()


@case(spread(6), spread(7), spread(6, seed=9), normals(7))
def thomas_algorithm(lower, diagonal, upper, rhs):
    n = len(diagonal)
    diagonal = diagonal + 3.0
    c, d, x = np.zeros(n - 1), np.zeros(n), np.zeros(n)
    c[0], d[0] = upper[0] / diagonal[0], rhs[0] / diagonal[0]
    for i in range(1, n):
        m = diagonal[i] - lower[i - 1] * (c[i - 2] if i > 1 else c[0])
        if i < n - 1:
            c[i] = upper[i] / m
        d[i] = (rhs[i] - lower[i - 1] * d[i - 1]) / m
    x[-1] = d[-1]
    for i in range(n - 2, -1, -1):
        x[i] = d[i] - c[i] * x[i + 1]
    return x @ np.arange(n)


@case(normals(5, 5), normals(5))
def jacobi_iteration(a, b):
    a = a + 8 * np.eye(5)
    d = np.diag(a)
    r = a - np.diagflat(d)
    x = np.zeros_like(b)
    for _ in range(5):
        x = (b - np.dot(r, x)) / d
    return np.linalg.norm(x)


@case(0.8, 0.2)
def backward_euler(y, stiffness):
    def residual(z, y):
        return z - y + 0.1 * (stiffness * z**3 + z)

    for _ in range(3):
        z = y
        for _ in range(4):
            z = z - residual(z, y) / (1 + 0.1 * (3 * stiffness * z**2 + 1))
        y = z
    return y


# -- physics ----------------------------------------------------------------------------------------------------------


@case(1.5 * np.stack(np.meshgrid(*[np.arange(2.0)] * 3), -1).reshape(-1, 3) + 0.1 * normals(8, 3))
def lennard_jones(positions):
    energy = 0.0
    n = positions.shape[0]
    for i in range(n - 1):
        d = positions[i + 1 :] - positions[i]
        inverse = 1.0 / np.einsum("ij,ij->i", d, d) ** 3
        energy += np.sum(4 * (inverse**2 - inverse))
    return energy


@case(normals(4, 2), normals(4, 2, seed=2), spread(4))
def leapfrog(q, p, mass):
    def force(q):
        d = q[:, np.newaxis, :] - q[np.newaxis, :, :]
        r2 = (d**2).sum(axis=-1) + 0.1
        return -(d * (mass[None, :] * r2 ** (-1.5))[..., np.newaxis]).sum(axis=1)

    q, p, dt = np.array(q), np.array(p), 0.05
    p += 0.5 * dt * force(q)
    for _ in range(3):
        q += dt * p
        p += dt * force(q)
    return np.sum(mass[:, None] * p**2) / 2


class Pendulum:
    """A chain of pendulums with a state of its own."""

    def __init__(self, length, damping):
        self.length, self.damping = length, damping
        self.trace = np.zeros(5)

    def acceleration(self, angle, velocity):
        return -9.81 / self.length * np.sin(angle) - self.damping * velocity

    def run(self, angle):
        velocity = 0.0
        for i in range(5):
            velocity = velocity + 0.1 * self.acceleration(angle, velocity)
            angle = angle + 0.1 * velocity
            self.trace[i] = angle
        return self.trace.std()


@case(0.4, 1.2, 0.1)
def pendulum(angle, length, damping):
    return Pendulum(length, damping).run(angle)


@case(spread(5, 4))
def ising_energy(field):
    rolled = np.roll(field, 1, axis=0) + np.roll(field, -1, 1)
    return -(field * rolled).sum() + np.ptp(field)


@case(np.array([0.1, 0.2, 0.3]), np.array([1.0, -0.5, 2.0]))
def rotate(angles, v):
    c, s = np.cos(angles), np.sin(angles)
    m = np.eye(3)
    for k, (i, j) in enumerate([(0, 1), (1, 2), (0, 2)]):
        r = np.eye(3)
        r[[i, j], [i, j]] = c[k]
        r[i, j] = -s[k]
        r[j, i] = s[k]
        m = m @ r
    return np.cross(m @ v, v).sum() + np.arctan2(v[0], v[1])


# -- linear algebra ---------------------------------------------------------------------------------------------------


@case(normals(4, 4))
def in_place_cholesky(a):
    a = a @ a.T + 4 * np.eye(4)
    factor = np.zeros((4, 4))
    for i in range(4):
        for j in range(i + 1):
            s = a[i, j] - factor[i, :j] @ factor[j, :j]
            factor[i, j] = np.sqrt(s) if i == j else s / factor[j, j]
    return np.sum(np.log(np.diag(factor))) + factor[3, 0]


@case(normals(4, 4) + 4 * np.eye(4))
def gauss_elimination(a):
    a = a.copy()
    for k in range(4):
        row = a[k]
        row /= row[k] + 0.5
        for i in range(k + 1, 4):
            a[i] -= a[i, k] * row
    return np.abs(a).sum()


@case(normals(5, 3))
def gram_schmidt(x):
    basis = []
    for v in x.T:
        for b in basis:
            v = v - np.inner(v, b) * b
        basis.append(v / np.sqrt(np.vdot(v, v)))
    return (np.vstack(basis) * WEIGHTS[:, None]).sum()


@case(normals(4, 4), 0.3)
def spectral(a, t):
    s = a + a.T
    w, v = np.linalg.eigh(s)
    return np.sum(np.exp(t * w)) + linalg.expm(t * a)[0, 1] + np.linalg.det(s) + (v**2)[:, 0].sum()


@case(spread(3, 4), spread(4, 2))
def products(a, b):
    c = np.tensordot(a, b, axes=1)
    k = np.kron(a[:, :2], b[:2])
    return np.einsum("ij,jk,ik", a, b, c) + k.trace() + np.outer(a[0], b[:, 0]).max() + c.prod()


# -- signals ----------------------------------------------------------------------------------------------------------


@case(normals(16), np.array([0.25, 0.5, 0.25]))
def smooth_and_differ(x, kernel):
    y = np.convolve(x, kernel, mode="same")
    padded = np.pad(y, 2, mode="reflect")
    return (np.diff(padded, n=2) ** 2).sum() + np.gradient(y, 0.5)[3:5].sum()


@case(normals(12), 0.2)
def soft_threshold(x, level):
    y = np.where(np.abs(x) > level, np.sign(x) * (np.abs(x) - level), 0.0)
    np.multiply(y, 2.0, out=y)
    y[::2] *= 0.5
    y[1:4] = y[4:1:-1]
    return np.sqrt(np.add.reduce(y**2)) + np.maximum.accumulate(x)[-1]


@case(normals(6, 6), spread(3, 3))
def image_filter(image, kernel):
    out = zeros((4, 4))
    for i in range(4):
        for j in range(4):
            out[i, j] = (image[i : i + 3, j : j + 3] * kernel).sum()
    return sqrt(exp(-log(out**2 + 1)).mean())


@case(np.linspace(-1.0, 1.0, 7), np.array([0.5, -1.0, 2.0, 0.3]))
def polynomial(x, coefficients):
    horner = np.polyval(coefficients, x)
    powers = np.vander(x, 4) @ coefficients
    chebyshev = np.cos(np.arange(4)[:, None] * np.arccos(0.9 * x)).T @ coefficients
    return (horner * powers).sum() + chebyshev[2]


@dataclass
class Layer:
    weights: object
    bias: object


@case(normals(3, 4), normals(4, 5), normals(5), normals(5, 2, seed=4))
def small_network(x, w1, b1, w2):
    layers = [Layer(w1, b1), Layer(w2, np.zeros(2))]
    activation = partial(np.maximum, 0.01)
    for layer in layers:
        x = activation(x @ layer.weights + layer.bias)
    probabilities = special.softmax(x, axis=1)
    return -np.log(probabilities[np.arange(3), [0, 1, 1]]).mean()


@case(spread(6), 0.5)
def masked_division(x, level):
    out = np.zeros_like(x)
    np.divide(level, x, out=out, where=x > 0.8)
    spent = np.select([x < 0.7, x < 1.1], [x**2, x], default=2.0)
    counts = np.zeros(3)
    np.add.at(counts, [0, 1, 2, 0, 1, 2], out + spent)
    return counts @ WEIGHTS


@case(normals(9, seed=7), 0.6)
def median_filter(x, strength):
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 2, mode="reflect"), 5)
    smooth = np.median(windows, axis=-1)
    out = np.empty_like(x)
    np.subtract(x, smooth, out=out)
    np.clip(out, -strength, strength, out)
    out[out < 0] *= 0.5
    return np.sum(out**2) + np.percentile(smooth, 75) + np.quantile(x, [0.1, 0.9]).sum()


@case(normals(8, seed=8), normals(8, seed=9))
def legendre_fit(x, y):
    basis = np.polynomial.legendre.legvander(x, 3)
    coefficients, residuals, _, singular_values = np.linalg.lstsq(basis, y, rcond=None)
    return np.polynomial.legendre.legval(0.3, coefficients) + residuals.sum() + singular_values[0]
