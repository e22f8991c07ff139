"""The cases of ``kernels.py``, in a table by family.

A case is a function of a system (``systems``) and its arrays, the sizes at which it is measured by name, and how more
are drawn. To add one, add a line to its family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]  # one for each operand
Function = Callable[..., Any]
Draw = Callable[[np.random.Generator], Shapes]


@dataclass(frozen=True, slots=True)
class Case:
    """``function(system, *arrays)`` at ``sizes``.

    ``kinds`` has a letter for each operand, the last one counts for all that follow: ``n`` normal, ``u`` uniform in
    (0, 1), ``z`` int64, ``s`` int32, ``b`` bool, ``t`` what holds throughout, ``i`` indices below the first size of the
    first operand, ``c`` below its last.
    Operands of the kinds n and u have gradients, unless the case says that there are none. ``without`` names systems
    that have no such function.
    """

    function: Function
    sizes: Sequence[Shapes]
    draw: Draw | None = None
    kinds: str = "n"
    gradient: bool = True
    without: Sequence[str] = ()

    def kind(self, operand: int) -> str:
        return self.kinds[min(operand, len(self.kinds) - 1)]

    def arrays(self, shapes: Shapes, dtype: np.dtype, rng: np.random.Generator) -> list[Array]:
        bound = {"i": shapes[0][0], "c": shapes[0][-1]}

        def draw(kind: str, shape: tuple[int, ...]) -> Array:
            match kind:
                case "n":
                    return rng.standard_normal(shape).astype(dtype)
                case "u":
                    return rng.random(shape).astype(dtype)
                case "b":
                    return rng.random(shape) < 0.5
                case "t":
                    return np.ones(shape, bool)
                case "z":
                    return rng.integers(-1000, 1000, shape)
                case "s":
                    return rng.integers(-(2**31), 2**31, shape).astype(np.int32)
                case _:
                    return rng.integers(0, bound[kind], shape)

        return [draw(self.kind(i), shape) for i, shape in enumerate(shapes)]


# -- sizes ----------------------------------------------------------------------------------------------------------


def one(*shapes: tuple[int, ...]) -> list[Shapes]:
    """Sizes of a case with one operand."""
    return [(shape,) for shape in shapes]


def affine(*shapes: tuple[int, ...]) -> list[Shapes]:
    """Sizes of a case with a weight and a bias for each column."""
    return [(shape, shape[-1:], shape[-1:]) for shape in shapes]


def same(count: int, *shapes: tuple[int, ...]) -> list[Shapes]:
    return [(shape,) * count for shape in shapes]


def drawn_rows(rng: np.random.Generator) -> Shapes:
    return ((int(2 ** rng.uniform(3, 12)), int(2 ** rng.uniform(2, 12))),)


def drawn_affine(rng: np.random.Generator) -> Shapes:
    (rows,) = drawn_rows(rng)
    return rows, rows[-1:], rows[-1:]


def drawn_points(rng: np.random.Generator) -> Shapes:
    return ((int(2 ** rng.uniform(7, 11.5)), int(rng.integers(1, 17))),)


# Elements of one operand: in the first cache, the second, the third, and beyond them.
FLAT = one((4000,), (100_000,), (1_000_000,), (9_000_000,))
CACHED = one((512, 512))
ROWS = one((512, 512), (64, 4096), (8192, 64), (10000, 10), (100_000, 3), (333, 77), (4096, 1024))
NORMS = affine((512, 512), (4096, 768), (10000, 32), (10000, 10), (333, 77))
LONG = one((1, 1_000_000), (3, 300_000))  # few rows: what is computed of one has no other beside it
TABLES = one((1000, 1000), (100_000, 8), (64, 4096), (4096, 2048), (777, 33))
IMAGES = one((16, 32, 56, 56), (8, 64, 112, 112), (64, 6, 28, 28))
POINTS = one((512, 2), (512, 16), (2048, 2), (2048, 16))


# -- functions that are more than a name ----------------------------------------------------------------------------


def named(name: str) -> Function:
    return lambda m, *xs: getattr(m, name)(*xs)


def spelled(subscripts: str) -> Function:
    return lambda m, *xs: m.einsum(subscripts, *xs)


def stable_order(m: Any, x: Any) -> Any:
    """Equal elements in their order: of the others there are several."""
    return m.argsort(x, axis=1, stable=True)


def square_distances(x: Any) -> Any:
    return ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1)


def black_scholes(m: Any, spot: Any, strike: Any, years: Any) -> Any:
    spread = (0.1 + years) ** 0.5
    d1 = (m.log((0.5 + spot) / (0.5 + strike)) + 0.02 + years) / spread
    half = 0.5**0.5
    return spot * (1 + m.erf(d1 * half)) - strike * (1 + m.erf((d1 - spread) * half))


def lennard_jones(m: Any, x: Any) -> Any:
    inverse = 1 / (0.5 + square_distances(x))
    third = inverse * inverse * inverse
    return m.sum(third * third - third, 1)


# Loops over a small state: what a turn takes is latency, of arithmetic and of whatever lies between two turns.


def pendulum(m: Any, push: Any, start: Any) -> Any:
    def turn(state: Any, push: Any) -> tuple[Any, Any]:
        speed = state[1] + 0.01 * (push - m.sin(state[0]))
        angle = state[0] + 0.01 * speed
        return m.stack((angle, speed)), angle

    return m.scan(turn, start, push)[1]


def lorenz(m: Any, push: Any, start: Any) -> Any:
    """Runge and Kutta's method of fourth order on Lorenz's (1963) system, pushed about."""

    def slope(v: Any) -> Any:
        return m.stack((10.0 * (v[1] - v[0]), v[0] * (28.0 - v[2]) - v[1], v[0] * v[1] - 8 / 3 * v[2]))

    def turn(v: Any, push: Any) -> tuple[Any, Any]:
        first = slope(v)
        second = slope(v + 0.005 * first)
        third = slope(v + 0.005 * second)
        fourth = slope(v + 0.01 * third)
        new = v + 0.01 / 6 * (first + 2 * second + 2 * third + fourth) + 0.001 * push
        return new, new[0]

    return m.scan(turn, start, push)[1]


def kalman(m: Any, seen: Any, move: Any, look: Any, noise: Any) -> Any:
    """The log likelihood's terms of what a filter for a hidden state sees, two numbers a turn."""
    spread = noise @ noise.T
    near = look @ look.T * 0.1

    def turn(carry: Any, seen: Any) -> tuple[Any, Any]:
        mean, cov = carry
        mean, cov = 0.3 * move @ mean, 0.09 * move @ cov @ move.T + spread
        s = look @ cov @ look.T + near
        size = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        inverse = m.stack((m.stack((s[1, 1], -s[0, 1])), m.stack((-s[1, 0], s[0, 0])))) / size
        gain, error = cov @ look.T @ inverse, seen - look @ mean
        return (mean + gain @ error, cov - gain @ look @ cov), m.log(size) + error @ (inverse @ error)

    return m.scan(turn, (move[0] * 0.0, spread), seen)[1]


def heston(m: Any, noise: Any, rate: Any) -> Any:
    """Prices of a stock with a variance of its own (Heston, 1993), many paths at once."""

    def turn(carry: Any, noise: Any) -> tuple[Any, Any]:
        price, variance = carry
        positive = m.maximum(variance, 0.0)
        spread = m.sqrt(positive + 1e-8) * 0.1
        price = price * m.exp(spread * noise[0] - 0.005 * positive)
        return (price, variance + rate * (0.04 - positive) * 0.01 + 0.3 * spread * noise[1]), m.mean(price)

    still = noise[0, 0] * 0.0
    return m.scan(turn, (still + 1.0, still + 0.04), noise)[1]


def diffusion(m: Any, push: Any, start: Any) -> Any:
    """Burgers' equation on a ring."""

    def turn(u: Any, push: Any) -> tuple[Any, Any]:
        left, right = m.roll(u, 1, 0), m.roll(u, -1, 0)
        new = u - 0.05 * u * (right - left) + 0.1 * (right - 2 * u + left) + 0.001 * push
        return new, new[0]

    return m.scan(turn, start, push)[1]


def bodies(m: Any, push: Any, places: Any, speeds: Any) -> Any:
    """Bodies that attract each other."""

    def turn(carry: Any, push: Any) -> tuple[Any, Any]:
        places, speeds = carry
        apart = places[:, None, :] - places[None, :, :]
        square = (apart * apart).sum(-1) + 0.1
        speeds = speeds - 0.01 * (apart / (square * m.sqrt(square))[:, :, None]).sum(1) * (1 + 0.01 * push)
        places = places + 0.01 * speeds
        return (places, speeds), places[0, 0]

    return m.scan(turn, (places, speeds), push)[1]


def elementary(name: str) -> Case:
    kinds = "u" if name in ("log", "log2", "log10", "sqrt", "rsqrt", "asin", "acos", "erfinv") else "n"
    without = ("numpy",) if name in ("erf", "erfc", "erfinv") else ()
    peers = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}

    def function(m: Any, x: Any) -> Any:
        return getattr(m, name if hasattr(m, name) else peers[name])(x)

    return Case(function, CACHED, drawn_rows, kinds, without=without)


ELEMENTARY = (
    "exp", "log", "tanh", "erf", "erfc", "erfinv", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "expm1",
    "log1p", "exp2", "log2", "log10", "sqrt", "rsqrt",
)  # fmt: skip

ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "silu", "softplus", "gelu", "gelu_tanh", "elu")


# -- the table ------------------------------------------------------------------------------------------------------

FAMILIES: dict[str, dict[str, Case]] = {
    "elementary": {
        **{name: elementary(name) for name in ELEMENTARY},
        "pow": Case(lambda m, x, y: x**y, same(2, (512, 512)), kinds="u"),
        "atan2": Case(lambda m, x, y: m.atan2(x, y) if hasattr(m, "atan2") else m.arctan2(x, y), same(2, (512, 512))),
    },
    "activations": {
        name: Case(named(name), one((100_000,), (2048, 2048)), drawn_rows, without=("numpy",))
        for name in ACTIVATIONS
    },
    "chains": {
        "chain": Case(lambda m, x: m.exp(-x * x) * x + 2.0 * x - 1.0, FLAT, drawn_rows),
        "add": Case(lambda m, x, y: x + y, same(2, (100,), (4000,), (100_000,), (1_000_000,), (9_000_000,))),
        "scale": Case(lambda m, x: x * 2.5, FLAT, drawn_rows),
        "triad": Case(lambda m, x, y, z: x + y * z, same(3, (4000,), (100_000,), (4_000_000,))),
        "polynomial": Case(lambda m, x: ((0.5 * x + 1.0) * x - 2.0) * x + 3.0, FLAT, drawn_rows),
        "black_scholes": Case(black_scholes, same(3, (100_000,)), kinds="u", without=("numpy",)),
        "divide": Case(lambda m, x, y: x / (2 + y), same(2, (100_000,), (1_000_000,)), kinds="u"),
        "bias": Case(lambda m, x, b: x + b, [((512, 512), (512,)), ((20000, 10), (10,)), ((3000, 33), (33,))]),
        "per_row": Case(lambda m, x, b: x * b, [(s, (s[0], 1)) for s in ((512, 512), (20000, 10), (3000, 33))]),
        "outer": Case(lambda m, x, y: x[:, None] * y, [((1000,), (1000,)), ((5000,), (7,))]),
        "channel_bias": Case(lambda m, x, b: x + b, [((16, 32, 56, 56), (32, 1, 1)), ((64, 7, 9, 9), (7, 1, 1))]),
        "middle": Case(lambda m, x, b: x * b, [((64, 50, 40), (64, 1, 40)), ((100, 3, 5, 11), (1, 3, 1, 11))]),
    },
    "masks": {
        "where": Case(lambda m, c, x, y: m.where(c, x, y), same(3, (4000,), (100_000,), (1_000_000,)), kinds="bn"),
        "positive": Case(lambda m, x, y: m.where(x > 0, x, y), same(2, (100_000,), (1_000_000,))),
        "clip": Case(lambda m, x: m.clip(x, -1.0, 1.0), one((100_000,), (1_000_000,))),
        "greater": Case(lambda m, x, y: x > y, same(2, (100_000,), (1_000_000,)), gradient=False),
        "both": Case(lambda m, x, y: (x > 0) & (y < 1), same(2, (100_000,), (1_000_000,)), gradient=False),
        "logical_not": Case(lambda m, x: m.logical_not(x), one((100_000,), (1_000_000,)), kinds="b", gradient=False),
        "any_rows": Case(lambda m, x: m.any(x > 4.0, 1), one((512, 512), (8192, 33)), gradient=False),
        "count": Case(lambda m, x: m.sum(x > 0), one((100_000,), (1000, 1000)), gradient=False),
    },
    "integers": {
        "int_add": Case(lambda m, x, y: x + y, same(2, (100_000,), (1_000_000,)), kinds="z", gradient=False),
        "int_multiply": Case(lambda m, x, y: x * y, same(2, (100_000,), (1_000_000,)), kinds="z", gradient=False),
        "int_divide": Case(lambda m, x: x // 7, one((100_000,)), kinds="z", gradient=False),
        "int_remainder": Case(lambda m, x: x % 10, one((100_000,)), kinds="z", gradient=False),
        "int_quotient": Case(lambda m, x, y: x // (y * y + 3), same(2, (100_000,)), kinds="z", gradient=False),
        "int_sum": Case(lambda m, x: m.sum(x, 1), TABLES, kinds="z", gradient=False),
        "int_max": Case(lambda m, x: m.max(x, 1), TABLES, kinds="z", gradient=False),
        "to_float": Case(lambda m, x: m.cast(x, "float32"), one((100_000,), (1_000_000,)), kinds="z", gradient=False),
        "to_int": Case(lambda m, x: m.cast(100.0 * x, "int64"), one((100_000,), (1_000_000,)), gradient=False),
        "to_double": Case(lambda m, x: m.cast(x, "float64"), one((100_000,), (1_000_000,)), gradient=False),
    },
    "rows": {
        "softmax": Case(lambda m, x: m.softmax(x, -1), ROWS, drawn_rows),
        "softmax_columns": Case(lambda m, x: m.softmax(x, 0), one((512, 512), (64, 4096), (10000, 10))),
        "softmax_middle": Case(lambda m, x: m.softmax(x, 1), one((32, 64, 100), (16, 21, 32 * 32))),
        "log_softmax": Case(lambda m, x: m.log_softmax(x), ROWS, drawn_rows),
        "logsumexp": Case(lambda m, x: m.logsumexp(x, -1), ROWS, drawn_rows),
        "cross_entropy": Case(
            named("cross_entropy"), [((n, c), (n,)) for n, c in ((512, 10), (65536, 10), (1024, 1000), (5000, 100))],
            kinds="nc",
        ),
    },
    "norms": {
        "layer_norm": Case(named("layer_norm"), NORMS, drawn_affine),
        "rms_norm": Case(named("rms_norm"), [shapes[:2] for shapes in NORMS], lambda rng: drawn_affine(rng)[:2]),
        "batch_norm": Case(named("batch_norm"), affine((512, 512), (20000, 64), (1000, 10)), drawn_affine),
        "image_norm": Case(named("image_norm"), IMAGES),
        "standardize": Case(lambda m, x: (x - m.mean(x, 0)) / (1e-3 + m.sqrt(m.mean(x * x, 0))), one((10000, 30))),
        "normalize": Case(lambda m, x: x * m.rsqrt(m.sum(x * x, 1)[:, None]), one((10000, 3), (1000, 256))),
    },
    "reductions": {
        "sum_0": Case(lambda m, x: m.sum(x, 0), TABLES, drawn_rows),
        "sum_1": Case(lambda m, x: m.sum(x, 1), TABLES, drawn_rows),
        "sum_all": Case(lambda m, x: m.sum(x), TABLES, drawn_rows),
        "sum_middle": Case(lambda m, x: m.sum(x, 1), one((64, 50, 40), (1000, 33, 7), (16, 64, 4096))),
        "sum_outer_inner": Case(lambda m, x: m.sum(x, (0, 2)), one((64, 50, 40), (16, 64, 3136), (1000, 33, 7))),
        "max_0": Case(lambda m, x: m.max(x, 0), TABLES, drawn_rows),
        "max_1": Case(lambda m, x: m.max(x, 1), TABLES, drawn_rows),
        "max_all": Case(lambda m, x: m.max(x), TABLES[:3]),
        "squares": Case(lambda m, x: m.sum(x * x), FLAT, drawn_rows),
        "dot": Case(lambda m, x, y: m.sum(x * y, 1), same(2, (1000, 1000), (100_000, 3))),
        "mean_exp": Case(lambda m, x: m.mean(m.exp(x), 1), one((512, 512), (10000, 30))),
        "prod_1": Case(lambda m, x: m.prod(x, 1), one((1000, 1000), (20000, 7)), gradient=False),
        "argmax_1": Case(lambda m, x: m.argmax(x, 1), TABLES, drawn_rows, gradient=False),
        "argmax_0": Case(lambda m, x: m.argmax(x, 0), TABLES, drawn_rows, gradient=False),
        "argmin_1": Case(lambda m, x: m.argmin(x, 1), one((1000, 1000), (20000, 10)), gradient=False),
    },
    "long_rows": {
        "long_sum": Case(lambda m, x: m.sum(x, 1), LONG),
        "long_mean": Case(lambda m, x: m.mean(x, 1), LONG),
        "long_max": Case(lambda m, x: m.max(x, 1), LONG),
        "long_var": Case(lambda m, x: m.var(x, 1), LONG),
        "long_argmax": Case(lambda m, x: m.argmax(x, 1), LONG, gradient=False),
        "long_argmin": Case(lambda m, x: m.argmin(x, 1), LONG, gradient=False),
        "long_logsumexp": Case(lambda m, x: m.logsumexp(x, 1), LONG),
        "long_any": Case(lambda m, x: m.any(x > 9.0, 1), LONG, gradient=False),
        "long_int64_sum": Case(lambda m, x: m.sum(x, 1), LONG, kinds="z", gradient=False),
        "long_int64_max": Case(lambda m, x: m.max(x, 1), LONG, kinds="z", gradient=False),
        "long_int64_argmax": Case(lambda m, x: m.argmax(x, 1), LONG, kinds="z", gradient=False),
        "long_int32_max": Case(lambda m, x: m.max(x, 1), LONG, kinds="s", gradient=False),
        "long_int32_argmax": Case(lambda m, x: m.argmax(x, 1), LONG, kinds="s", gradient=False),
        "long_bool_all": Case(lambda m, x: m.all(x, 1), LONG, kinds="t", gradient=False),
    },
    "moves": {
        "transpose": Case(
            lambda m, x: m.permute(x, (1, 0)), one((512, 512), (2000, 3000), (100_000, 8), (8, 100_000), (333, 77)),
            drawn_rows,
        ),
        "to_channels_last": Case(lambda m, x: m.permute(x, (0, 2, 3, 1)), one((16, 32, 56, 56), (64, 3, 32, 32))),
        "to_channels_first": Case(lambda m, x: m.permute(x, (0, 3, 1, 2)), one((16, 56, 56, 32), (64, 32, 32, 3))),
        "heads": Case(lambda m, x: m.permute(x, (0, 2, 1, 3)), one((8, 128, 8, 32), (16, 100, 3, 20))),
        "concat": Case(lambda m, x, y: m.concatenate((x, y), 1) if hasattr(m, "concatenate") else m.concat((x, y), 1),
                       [((1000, 300), (1000, 200)), ((10000, 3), (10000, 5))]),
        "flip": Case(lambda m, x: m.flip(x, (1,)) if hasattr(m, "nn") else m.flip(x, axis=1), one((512, 512)),
                     without=("jax",)),
        "crop": Case(lambda m, x: x[:, 3:-3] * 2.0, one((512, 512), (10000, 13))),
        "every_other": Case(lambda m, x: x[:, ::2] + x[:, 1::2], one((512, 512), (3000, 38))),
        "difference": Case(lambda m, x: x[:, 1:] - x[:, :-1], one((512, 512), (10000, 13), (1000, 1000))),
    },
    "gathers": {
        "take_rows": Case(
            lambda m, x, i: m.take(x, i, 0),
            [((10000, 64), (20000,)), ((1000, 512), (5000,)), ((50000, 10), (4096,))], kinds="ni",
        ),
        "take_scalars": Case(lambda m, x, i: x[i], [((10000,), (100_000,)), ((1_000_000,), (100_000,))], kinds="ni"),
        "add_at": Case(
            named("add_at"), [((10000, 64), (20000,), (20000, 64)), ((1000, 10), (20000,), (20000, 10))], kinds="nin"
        ),
    },
    "windows": {
        "max_pool_2": Case(lambda m, x: m.max_pool(x, 2, 2), IMAGES),
        "max_pool_3": Case(lambda m, x: m.max_pool(x, 3, 2), IMAGES),
        "avg_pool_2": Case(lambda m, x: m.avg_pool(x, 2, 2), IMAGES),
        "avg_pool_7": Case(lambda m, x: m.avg_pool(x, 7, 7), one((32, 64, 7, 7), (16, 32, 56, 56))),
    },
    "loops": {
        "pendulum": Case(pendulum, [((1000,), (2,))]),
        "lorenz": Case(lorenz, [((200, 3), (3,))]),
        "kalman": Case(kalman, [((500, 2), (d, d), (2, d), (d, d)) for d in (2, 4, 12)]),
        "heston": Case(heston, [((50, 2, paths), ()) for paths in (1, 100, 10_000)]),
        "diffusion": Case(diffusion, [((200,), (cells,)) for cells in (64, 10_000)]),
        "bodies": Case(bodies, [((100,), (count, 3), (count, 3)) for count in (2, 5, 64)]),
    },
    "scans": {
        "cumsum_1": Case(lambda m, x: m.cumsum(x, 1), TABLES, drawn_rows),
        "cumsum_0": Case(lambda m, x: m.cumsum(x, 0), TABLES, drawn_rows),
        "sort": Case(lambda m, x: m.sort(x, 1), one((1000, 1000), (10000, 10), (64, 4096)), drawn_rows, gradient=False),
        "argsort": Case(
            stable_order, one((1000, 100), (10000, 10), (64, 4096), (1, 1_000_000)), drawn_rows, gradient=False
        ),
        "long_sort": Case(lambda m, x: m.sort(x, 1), LONG, gradient=False),
        "int64_sort": Case(
            lambda m, x: m.sort(x, 1), one((1000, 1000), (10000, 10), (1, 1_000_000)), kinds="z", gradient=False
        ),
        "int32_sort": Case(
            lambda m, x: m.sort(x, 1), one((1000, 1000), (10000, 10), (1, 1_000_000)), kinds="s", gradient=False
        ),
        "int32_argsort": Case(stable_order, one((1000, 100), (64, 4096)), kinds="s", gradient=False),
    },
    "products": {  # of several operands: vertices moved by bones, and by the tangents of bones
        "bones": Case(lambda m, t, v, w: m.einsum("bij,vj,vb->vi", t, v, w), [((22, 3, 4), (6000, 4), (6000, 22))]),
        "bone_tangents": Case(
            lambda m, t, v, w: m.einsum("tbij,vj,vb->tvi", t, v, w), [((26, 22, 3, 4), (6000, 4), (6000, 22))]
        ),
    },
    "einsums": {  # of two operands and more, whose gradients are products of other layouts
        "bmm": Case(spelled("bij,bjk->bik"), [((64, 64, 64), (64, 64, 64)), ((16, 100, 30), (16, 30, 70))]),
        "bmm_shared": Case(spelled("bij,jk->bik"), [((64, 50, 64), (64, 96))]),
        "scores": Case(spelled("bihd,bjhd->bhij"), [((8, 128, 4, 32), (8, 128, 4, 32))]),
        "mixed": Case(spelled("bhij,bjhd->bihd"), [((8, 4, 128, 128), (8, 128, 4, 32))]),
        "heads_in": Case(spelled("bid,dhk->bihk"), [((8, 128, 128), (128, 4, 32))]),
        "heads_out": Case(spelled("bihk,hkd->bid"), [((8, 128, 4, 32), (4, 32, 128))]),
        "bilinear": Case(spelled("bi,oij,bj->bo"), [((256, 32), (24, 32, 40), (256, 40))]),
        "quadratic": Case(spelled("bi,ij,bj->b"), [((1000, 64), (64, 64), (1000, 64))]),
        "outer_sum": Case(spelled("bi,bj->ij"), [((2000, 64), (2000, 48))]),
        "last_axes": Case(spelled("abij,kij->abk"), [((20, 30, 16, 12), (40, 16, 12))]),
        "middle_axis": Case(spelled("iaj,ab->ibj"), [((64, 48, 100), (48, 56))]),
        "tensor_train": Case(spelled("ap,apqc,bq->abc"), [((8, 24), (8, 24, 20, 16), (50, 20))]),
        "train_chain": Case(
            spelled("bi,bj,bk,ip,pjq,qk->b"), [((500, 8), (500, 8), (500, 8), (8, 12), (12, 8, 12), (12, 8))]
        ),
        "tucker": Case(spelled("abc,ia,jb,kc->ijk"), [((8, 10, 12), (40, 8), (30, 10), (20, 12))]),
    },
    "pairs": {
        "kernel_sum": Case(lambda m, x: m.sum(m.exp(-square_distances(x)), 1), POINTS, drawn_points),
        "pair_logsumexp": Case(lambda m, x: m.logsumexp(-square_distances(x), 1), POINTS, drawn_points),
        "distances": Case(lambda m, x: square_distances(x), one((512, 3), (512, 16)), drawn_points),
        "lennard_jones": Case(lennard_jones, one((512, 3), (2048, 3)), drawn_points),
    },
}  # fmt: skip
