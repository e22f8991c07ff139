"""First values of variables: small frozen values that make an array from a shape, a dtype and a generator.

``sg.Variable(sg.init.kaiming_uniform(), shape=(64, 32))`` keeps no array: each session makes its own when the
variable is first used, from a generator that belongs to the variable alone: the value follows from the variable's name
and the session's seed (``sg.Session(seed=0)``), whatever else is declared and in whatever order variables are used. So
a variable that gets another name, as by a module that becomes an attribute of another one, begins with another value.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from staticgrad.base.boundary import boundary
from staticgrad.base.errors import GraphError
from staticgrad.base.frozen import frozen
from staticgrad.graph.optable import Array
from staticgrad.ops.variables import Initializer


@frozen
class constant:
    """Fill a variable with one number.

    Example:
        >>> sg.Session().run(sg.Variable(sg.init.constant(0.5), shape=(2,)))
        array([0.5, 0.5], dtype=float32)
    """

    value: float | int | bool

    @property
    def _fill(self) -> float | int | bool:
        return self.value

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return np.full(shape, self.value, dtype)


@frozen
class zeros:
    """Fill a variable with zeros.

    Example:
        >>> sg.Session().run(sg.Variable(sg.init.zeros(), shape=(3,)))
        array([0., 0., 0.], dtype=float32)
    """

    @property
    def _fill(self) -> int:
        return 0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return np.zeros(shape, dtype)


@frozen
class ones:
    """Fill a variable with ones.

    Example:
        >>> sg.Session().run(sg.Variable(sg.init.ones(), shape=(3,)))
        array([1., 1., 1.], dtype=float32)
    """

    @property
    def _fill(self) -> int:
        return 1

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return np.ones(shape, dtype)


@frozen
class uniform:
    """Draw numbers that are uniformly distributed in [low, high).

    Example:
        >>> w = sg.Variable(sg.init.uniform(-0.1, 0.1), shape=(1000,))
        >>> bool(abs(sg.Session().get(w)).max() <= 0.1)
        True
    """

    low: float = 0.0
    high: float = 1.0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return rng.uniform(self.low, self.high, shape).astype(dtype)


@frozen
class normal:
    """Draw normally distributed numbers with mean ``mean`` and standard deviation ``std``.

    Example:
        >>> w = sg.Variable(sg.init.normal(std=0.02), shape=(100, 100))
        >>> print(sg.Session().get(w).std().round(3))
        0.02
    """

    mean: float = 0.0
    std: float = 1.0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return rng.normal(self.mean, self.std, shape).astype(dtype)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan in and fan out of a weight ``(out, in, *kernel)``.

    Raises:
        GraphError: fewer than two dimensions.

    Example:
        >>> sg.init.fans((64, 32)), sg.init.fans((64, 3, 5, 5))
        ((32, 64), (75, 1600))
    """
    if len(shape) < 2:
        raise GraphError(f"fan in and fan out need a weight of at least 2 dimensions, actual shape {shape}")
    places = math.prod(shape[2:])
    return shape[1] * places, shape[0] * places


Mode = Literal["fan_in", "fan_out"]
Nonlinearity = Literal["linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]


@boundary
def calculate_gain(nonlinearity: str, a: float = 0.01) -> float:
    """The factor by which a nonlinearity wants its weights scaled; ``a`` is the negative slope of ``leaky_relu``.

    Raises:
        GraphError: an unknown nonlinearity.

    Example:
        >>> round(sg.init.calculate_gain("relu"), 3), round(sg.init.calculate_gain("leaky_relu", 0.2), 3)
        (1.414, 1.387)
    """
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5 / 3,
        "relu": math.sqrt(2),
        "leaky_relu": math.sqrt(2 / (1 + a * a)),
        "selu": 0.75,
    }
    if nonlinearity not in gains:
        raise GraphError(f"nonlinearity={nonlinearity!r}: expected one of {', '.join(map(repr, gains))}")
    return gains[nonlinearity]


@frozen
class xavier_uniform:
    """Uniform in ±gain·sqrt(6 / (fan in + fan out)) (Glorot and Bengio 2010).

    Example:
        >>> w = sg.Variable(sg.init.xavier_uniform(), shape=(200, 100))
        >>> print(abs(sg.Session().get(w)).max().round(2), np.sqrt(6 / 300).round(2))
        0.14 0.14
    """

    gain: float = 1.0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        bound = self.gain * math.sqrt(6 / max(sum(fans(shape)), 1))
        return uniform(-bound, bound).make(shape, dtype, rng)


@frozen
class xavier_normal:
    """Normal with standard deviation gain·sqrt(2 / (fan in + fan out)) (Glorot and Bengio 2010).

    Example:
        >>> w = sg.Variable(sg.init.xavier_normal(), shape=(300, 100))
        >>> print(sg.Session().get(w).std().round(2), np.sqrt(2 / 400).round(2))
        0.07 0.07
    """

    gain: float = 1.0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return normal(0.0, self.gain * math.sqrt(2 / max(sum(fans(shape)), 1))).make(shape, dtype, rng)


@frozen
class kaiming_uniform:
    """Uniform in ±gain·sqrt(3 / fan) (He, Zhang, Ren, Sun 2015).

    ``mode`` says which fan, ``nonlinearity`` which gain; ``a`` is the negative slope of ``leaky_relu``.

    Example:
        >>> w = sg.Variable(sg.init.kaiming_uniform(nonlinearity="relu"), shape=(200, 100))
        >>> print(abs(sg.Session().get(w)).max().round(2), np.sqrt(6 / 100).round(2))
        0.24 0.24
    """

    a: float = 0.0
    mode: Mode = "fan_in"
    nonlinearity: Nonlinearity = "leaky_relu"

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        bound = math.sqrt(3) * _kaiming_std(self, shape)
        return uniform(-bound, bound).make(shape, dtype, rng)


@frozen
class kaiming_normal:
    """Normal with standard deviation gain / sqrt(fan) (He, Zhang, Ren, Sun 2015); arguments as ``kaiming_uniform``.

    Example:
        >>> w = sg.Variable(sg.init.kaiming_normal(mode="fan_out"), shape=(200, 100))
        >>> print(sg.Session().get(w).std().round(2), np.sqrt(2 / 200).round(2))
        0.1 0.1
    """

    a: float = 0.0
    mode: Mode = "fan_in"
    nonlinearity: Nonlinearity = "leaky_relu"

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        return normal(0.0, _kaiming_std(self, shape)).make(shape, dtype, rng)


def _kaiming_std(init: kaiming_uniform | kaiming_normal, shape: tuple[int, ...]) -> float:
    if init.mode not in ("fan_in", "fan_out"):
        raise GraphError(f"mode={init.mode!r}: expected 'fan_in' or 'fan_out'")
    fan = fans(shape)[0 if init.mode == "fan_in" else 1]
    return calculate_gain(init.nonlinearity, init.a) / math.sqrt(max(fan, 1))


@frozen
class orthogonal:
    """gain times a matrix with orthonormal rows or columns, whichever are fewer (Saxe, McClelland, Ganguli 2013).

    Axes after the first are flattened.

    Example:
        >>> w = sg.Variable(sg.init.orthogonal(), shape=(2, 5))
        >>> sg.Session().run(w @ w.T).round(3)
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """

    gain: float = 1.0

    def make(self, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> Array:
        if len(shape) < 2:
            raise GraphError(f"orthogonal needs a weight of at least 2 dimensions, actual shape {shape}")
        rows, columns = shape[0], math.prod(shape[1:])
        gaussian = rng.normal(size=(max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(gaussian)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # makes it uniform among orthogonal matrices
        return np.asarray(self.gain * (q if rows >= columns else q.T)).reshape(shape).astype(dtype)


def is_initializer(value: Any) -> bool:
    """Tell an initializer, which makes arrays, from a value.

    Example:
        >>> sg.init.is_initializer(sg.init.zeros()), sg.init.is_initializer(0.0)
        (True, False)
    """
    return callable(getattr(value, "make", None)) and not isinstance(value, type)


__all__ = [
    "Initializer", "calculate_gain", "constant", "is_initializer", "kaiming_normal", "kaiming_uniform", "normal",
    "ones", "orthogonal", "uniform", "xavier_normal", "xavier_uniform", "zeros",
]  # fmt: skip
