"""Elementwise code against mpmath and NumPy, on every target that this machine runs.

One module a target holds a loop over arrays for each operation and dtype; the tests call them through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from support.scalar_loops import BOOL, F32, F64, FLOATS, I32, I64, U8, Body, add_loop, errors, inverse_erf

from staticgrad.compiler.emit.elementary import error, exponential, logarithm, piecewise
from staticgrad.compiler.emit.llvm import IRModule
from staticgrad.compiler.machine.target import TARGETS, Target, runs_here
from staticgrad.compiler.native.module import NativeModule

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
INTEGERS: tuple[np.dtype, ...] = (I32, I64, U8)
PAD = 64  # arrays are filled up to a multiple of the most lanes


# -- the program ----------------------------------------------------------------------------------------------------


def method(name: str) -> Body:
    return lambda b, xs: [getattr(b, name)(*xs)]


def casting(dtype: np.dtype) -> Body:
    return lambda b, xs: [b.cast(xs[0], dtype)]


@dataclass(frozen=True)
class Program:
    """The functions of one target."""

    target: Target
    native: NativeModule

    def __call__(self, name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.dtype]) -> list[np.ndarray]:
        size = inputs[0].size
        length = -(-size // PAD) * PAD
        filled = [np.concatenate([a, np.ones(length - size, a.dtype)]) for a in inputs]
        results = [np.empty(length, dtype) for dtype in outputs]
        pointers = [array.ctypes.data for array in (*filled, *results)]
        prototype = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * len(pointers)), ctypes.c_int64)
        prototype(self.native.address(name))(*pointers, length)
        return [r[:size] for r in results]

    def one(self, op: str, *inputs: np.ndarray, result: np.dtype | None = None, lanes: str = "") -> np.ndarray:
        dtype = inputs[0].dtype
        return self(f"{op}.{dtype.name}{lanes}", inputs, [result or dtype])[0]


UNARY = ["floor", "ceil", "trunc", "round", "sign", "neg", "abs", "sqrt"]
BINARY = ["add", "sub", "mul", "div", "floor_divide", "remainder", "minimum", "maximum", "copysign", "pow", "atan2"]
BITWISE = ["shift_left", "shift_right", "bit_and", "bit_or", "bit_xor"]
WHOLE = ["add", "sub", "mul", "floor_divide", "remainder", "minimum", "maximum", "pow", *BITWISE]
CLASSES = ["isnan", "isfinite", "isinf"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
DTYPES: tuple[np.dtype, ...] = (BOOL, U8, I32, I64, F32, F64)


@functools.cache
def program(target: Target) -> Program:
    module = IRModule(target)
    for dtype in FLOATS:
        lanes = target.lanes(dtype)
        for name in (*CASES, *UNARY):
            add_loop(module, f"{name}.{dtype.name}", [dtype], 1, lanes, method(name))
        for name in CASES:
            add_loop(module, f"{name}.{dtype.name}.single", [dtype], 1, 1, method(name))
        for name in ("exp", "log"):
            add_loop(module, f"{name}.{dtype.name}.wide", [dtype], 1, 32, method(name))
            add_loop(module, f"{name}.{dtype.name}.pair", [dtype], 1, 2, method(name))
        for name in BINARY:
            add_loop(module, f"{name}.{dtype.name}", [dtype, dtype], 1, lanes, method(name))
        for name in CLASSES:
            add_loop(module, f"{name}.{dtype.name}", [dtype], 1, lanes, method(name))
    for dtype in INTEGERS:
        for suffix, lanes in (("", target.lanes(I32)), (".single", 1)):
            for name in WHOLE:
                add_loop(module, f"{name}.{dtype.name}{suffix}", [dtype, dtype], 1, lanes, method(name))
        for name in ("sign", "neg", "abs", "bit_not"):
            add_loop(module, f"{name}.{dtype.name}", [dtype], 1, target.lanes(dtype), method(name))
    for name, dtype in itertools.product(COMPARISONS, DTYPES):
        add_loop(module, f"{name}.{dtype.name}", [dtype, dtype], 1, 4, method(name))
    for source, dtype in itertools.product(DTYPES, (*DTYPES, U32, U64)):
        add_loop(module, f"to_{dtype.name}.{source.name}", [source], 1, 8, casting(dtype))
    add_loop(module, "threefry.uint32", [U32] * 4, 2, 4, lambda b, xs: b.threefry(*xs))
    add_loop(module, "bits_to_unit.uint32", [U32], 1, 4, method("bits_to_unit"))
    add_loop(module, "bits_to_unit64.uint32", [U32, U32], 1, 4, method("bits_to_unit64"))
    return Program(target, NativeModule(module.texts(), target))


@pytest.fixture(params=[t for t in TARGETS.values() if runs_here(t)], ids=lambda t: t.name)
def compiled(request: pytest.FixtureRequest) -> Iterator[Program]:
    with np.errstate(all="ignore"):
        yield program(request.param)


# -- elementary functions: samples, references, bounds -----------------------------------------------------------------


def normal_range(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    """Every magnitude of the format with both signs, and many ordinary numbers."""
    bits = rng.integers(0, 1 << (8 * dtype.itemsize - 1), 150, dtype=np.int64 if dtype == F64 else np.int32)
    wide = bits.astype(f"i{dtype.itemsize}").view(dtype)
    parts = [wide[np.isfinite(wide)], np.exp(rng.uniform(-12, 5, 200)), rng.standard_normal(200) * 2]
    both = np.concatenate([p.astype(dtype) for p in parts])
    return np.concatenate([both, -both])


def spread(low: float, high: float, count: int = 400) -> Callable[[np.random.Generator, np.dtype], np.ndarray]:
    return lambda rng, dtype: rng.uniform(low, high, count).astype(dtype)


def exponents(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    low, high = (-104.0, 89.0) if dtype == F32 else (-746.0, 710.0)
    return np.concatenate([rng.uniform(low, high, 300), rng.uniform(low, 0.83 * low, 200)]).astype(dtype)


def near_one(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    return (1 - np.exp(rng.uniform(-36 if dtype == F64 else -16, 0, 300))).astype(dtype)


def large_near_multiples(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    """Of many angles up to 10^13 those that are next to multiples of pi/2."""
    x = np.exp(rng.uniform(9, 30, 100_000)).astype(dtype)
    quotient = x.astype(np.longdouble) / (np.longdouble(np.pi / 2) + np.longdouble(6.123233995736766e-17))
    return x[np.argsort(np.abs(quotient - np.rint(quotient)))[:100]]


def angles(rng: np.random.Generator, dtype: np.dtype) -> np.ndarray:
    """Neighbours of multiples of pi/2, where the reduction cancels, a little over 1/4 beside others, where the sine has
    a unit half that of the reduced angle, and huge ones."""
    multiples = (np.arange(1, 200) * (np.pi / 2)).astype(dtype)
    beside = rng.integers(500, 20_000, 1500) * (np.pi / 2) + rng.uniform(0.25, 0.2526, 1500)
    huge = np.concatenate([np.exp(rng.uniform(10, 80, 150)).astype(dtype), large_near_multiples(rng, dtype)])
    worst = np.array([6381956970095103.0 * 2.0**797, 1.5e6, 1.7e6] if dtype == F64 else [1.5e6, 1.7e6, 3e38], dtype)
    return np.concatenate([multiples, np.nextafter(multiples, dtype.type(0)), beside.astype(dtype), huge, worst])


@dataclass(frozen=True)
class Case:
    """A function: reference, where it is defined, more samples, error bounds in units of the last place."""

    reference: Callable[[Any], Any]
    domain: tuple[float, float] = (-np.inf, np.inf)
    samples: tuple[Callable[[np.random.Generator, np.dtype], np.ndarray], ...] = ()
    bounds: tuple[float, float] = (2.0, 2.0)  # float32, float64


CASES = {
    "exp": Case(mpmath.exp, samples=(exponents,)),
    "exp2": Case(lambda x: mpmath.mpf(2) ** x, samples=(exponents,)),
    "expm1": Case(mpmath.expm1, samples=(exponents,)),
    "sigmoid": Case(lambda x: 1 / (1 + mpmath.exp(-x)), samples=(exponents, spread(-3, 3))),
    "silu": Case(lambda x: x / (1 + mpmath.exp(-x)), samples=(exponents, spread(-3, 3), spread(-110, -85))),
    "normal": Case(mpmath.ncdf, samples=(spread(-1.5, 3), spread(-14, 0), spread(-38.5, 0)), bounds=(2.5, 3.0)),
    "gaussian": Case(lambda x: mpmath.exp(-x * x / 2), samples=(spread(0, 14), spread(0, 38.6))),
    "tanh": Case(mpmath.tanh, samples=(spread(0.3, 1), spread(0, 0.1))),
    "sinh": Case(mpmath.sinh, samples=(exponents, spread(0.5, 1.5))),
    "cosh": Case(mpmath.cosh, samples=(exponents,)),
    "log": Case(mpmath.log, (0, np.inf), (spread(0.6, 1.6),)),
    "log2": Case(lambda x: mpmath.log(x, 2), (0, np.inf), (spread(0.6, 1.6),)),
    "log10": Case(mpmath.log10, (0, np.inf), (spread(0.6, 1.6),)),
    "log1p": Case(mpmath.log1p, (-1, np.inf), (spread(-0.9, 1.5),)),
    "rsqrt": Case(lambda x: 1 / mpmath.sqrt(x), (0, np.inf)),
    "erf": Case(mpmath.erf, samples=(spread(0.5, 1.5), spread(0, 6))),
    "erfc": Case(mpmath.erfc, samples=(spread(-1, 2), spread(0.8, 1, 2000), spread(2, 27.3)), bounds=(2.5, 2.0)),
    "erfinv": Case(inverse_erf, (-1, 1), (spread(-1, 1, 150), near_one), bounds=(1.0, 2.0)),
    "sin": Case(mpmath.sin, samples=(angles,)),
    "cos": Case(mpmath.cos, samples=(angles,)),
    "tan": Case(mpmath.tan, samples=(angles, spread(-2, 2))),
    "asin": Case(mpmath.asin, (-1, 1), (spread(-1, 1), near_one)),
    "acos": Case(mpmath.acos, (-1, 1), (spread(-1, 1), near_one)),
    "atan": Case(mpmath.atan, samples=(spread(0, 3),)),
}
ODD = ("expm1", "tanh", "sinh", "log1p", "erf", "erfinv", "sin", "tan", "asin", "atan")


def exactly(name: str, x: float) -> Any:
    """The reference with enough digits: more for huge angles; near 0 the linear term, where mpmath would need them."""
    if name in ODD and 0 < abs(x) < 1e-25:
        with mpmath.workdps(40):
            slope = {"erf": 2 / mpmath.sqrt(mpmath.pi), "erfinv": mpmath.sqrt(mpmath.pi) / 2}.get(name, 1)
            return mpmath.mpf(x) * slope
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "sigmoid", "tanh", "erf", "erfc", "normal", "gaussian"):
        x = max(min(x, 2000.0), -2000.0)  # saturated long before, and slow for mpmath
    with mpmath.workdps(340 if name in ("sin", "cos", "tan") and abs(x) > 1e6 else 40):
        return CASES[name].reference(mpmath.mpf(x))


@functools.cache
def samples(name: str, dtype: np.dtype) -> tuple[np.ndarray, list[Any]]:
    case, rng = CASES[name], np.random.default_rng(7)
    x = np.concatenate([s(rng, dtype) for s in (normal_range, *case.samples)])
    low, high = case.domain
    x = x[(x > low) & (x < high)]
    return x, [exactly(name, float(v)) for v in x]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", CASES)
def test_accuracy(compiled: Program, name: str, dtype: np.dtype) -> None:
    x, expected = samples(name, dtype)
    got = compiled.one(name, x)
    error = errors(got, expected, dtype)
    worst = int(error.argmax())
    bound = CASES[name].bounds[FLOATS.index(dtype)]
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}, exactly {mpmath.nstr(expected[worst], 20)}"


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_any_number_of_lanes_gives_the_same_bits(compiled: Program, dtype: np.dtype) -> None:
    for name in CASES:
        x, _ = samples(name, dtype)
        wide = compiled.one(name, x)
        np.testing.assert_array_equal(wide, compiled.one(name, x, lanes=".single"), err_msg=name)
        if name in ("exp", "log"):
            for lanes in (".wide", ".pair"):
                np.testing.assert_array_equal(wide, compiled.one(name, x, lanes=lanes), err_msg=name)


INF, NAN = np.inf, np.nan
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(INF, INF), (-INF, 0), (0, 1), (-0.0, 1), (1e30, INF), (-1e30, 0), (-1e4, 0)],
    "exp2": [(INF, INF), (-INF, 0), (0, 1), (-0.0, 1), (10, 1024), (-3, 0.125), (1e30, INF), (-1e30, 0)],
    "expm1": [(INF, INF), (-INF, -1), (0, 0), (-0.0, -0.0), (1e30, INF), (-1e30, -1)],
    "sigmoid": [(INF, 1), (-INF, 0), (0, 0.5), (1e30, 1), (-1e30, 0), (-1e4, 0)],
    "silu": [(INF, INF), (-INF, NAN), (0, 0), (-0.0, -0.0), (1e30, 1e30), (-1e30, -0.0), (-1e4, -0.0)],
    "normal": [(INF, 1), (-INF, 0), (0, 0.5), (-0.0, 0.5), (1e30, 1), (-1e30, 0)],
    "gaussian": [(INF, 0), (-INF, 0), (0, 1), (-0.0, 1), (1e30, 0), (-1e4, 0)],
    "tanh": [(INF, 1), (-INF, -1), (0, 0), (-0.0, -0.0), (1e30, 1), (-50, -1)],
    "sinh": [(INF, INF), (-INF, -INF), (0, 0), (-0.0, -0.0), (1e30, INF)],
    "cosh": [(INF, INF), (-INF, INF), (0, 1), (-1e30, INF)],
    "log": [(INF, INF), (-INF, NAN), (0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (-1e-40, NAN)],
    "log2": [(INF, INF), (-INF, NAN), (0, -INF), (-0.0, -INF), (1, 0), (8, 3), (2.0**-40, -40), (-1, NAN)],
    "log10": [(INF, INF), (-INF, NAN), (0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (-1e-40, NAN)],
    "log1p": [(INF, INF), (-INF, NAN), (0, 0), (-0.0, -0.0), (-1, -INF), (-1.5, NAN)],
    "rsqrt": [(INF, 0), (0, INF), (-1, NAN), (4, 0.5)],
    "sqrt": [(INF, INF), (0, 0), (-0.0, -0.0), (-1, NAN), (9, 3)],
    "erf": [(INF, 1), (-INF, -1), (0, 0), (-0.0, -0.0), (7, 1), (-7, -1)],
    "erfc": [(INF, 0), (-INF, 2), (0, 1), (-0.0, 1), (40, 0), (-40, 2)],
    "erfinv": [(1, INF), (-1, -INF), (0, 0), (-0.0, -0.0), (1.5, NAN), (INF, NAN)],
    "sin": [(INF, NAN), (-INF, NAN), (0, 0), (-0.0, -0.0)],
    "cos": [(INF, NAN), (-INF, NAN), (0, 1), (-0.0, 1)],
    "tan": [(INF, NAN), (-INF, NAN), (0, 0), (-0.0, -0.0)],
    "asin": [(0, 0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN)],
    "acos": [(1, 0), (1.5, NAN), (-INF, NAN)],
    "atan": [(0, 0), (-0.0, -0.0)],
}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_special_values(compiled: Program, dtype: np.dtype) -> None:
    for name, pairs in SPECIAL.items():
        x = np.array([a for a, _ in pairs] + [NAN], dtype)
        expected = np.array([b for _, b in pairs] + [NAN], dtype)
        same(compiled.one(name, x), expected, f"{name} of {x}")


def same(got: np.ndarray, expected: np.ndarray, message: str = "") -> None:
    """Equal, NaN like NaN, and zeros of the same sign."""
    np.testing.assert_array_equal(got, expected, err_msg=message)
    if got.dtype.kind == "f":
        known = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]), err_msg=message)


def test_nothing_is_called_but_the_modules_own_functions(compiled: Program) -> None:
    called = set(re.findall(r"\bcallq?\s+(\S+)", compiled.native.assembly()))
    assert called <= {"exact_fmod", "reduce_angle"}


# -- powers ---------------------------------------------------------------------------------------------------------


@functools.cache
def power_samples(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    rng = np.random.default_rng(11)
    largest = 103.0 if dtype == F32 else 744.0
    logs = np.concatenate([rng.uniform(-0.8, 0.8, 500) * largest, rng.standard_normal(500) * 1e-2])
    x = np.concatenate([np.exp(logs), rng.uniform(0.1, 10, 300)]).astype(dtype)
    ulps = np.exp2(rng.uniform(0, 16, 200)).astype(int) * rng.choice([-1, 1], 200)
    x = np.concatenate([1 + ulps * np.finfo(dtype).epsneg, x]).astype(dtype)
    y = (rng.uniform(-1, 1, x.size) * largest / np.log(x.astype(np.float64))).astype(dtype)
    y[-150:] = rng.integers(-12, 12, 150)
    if dtype == F64:  # below 3/4, where the logarithm cancels and its series is longest
        worst = rng.uniform(0.74, 0.75, 3000)
        between = (1 + (np.arange(8, 24) % 16 + 0.5) / 16) / np.repeat([2, 1], 8)  # farthest from what tables are for
        near = rng.uniform(0.98, 1.04, 1000)
        worst = np.concatenate([worst, near, np.nextafter(between, 0), between, np.nextafter(between, 2)])
        x, y = np.concatenate([x, worst]), np.concatenate([y, rng.uniform(-700, 700, worst.size) / np.log(worst)])
    with mpmath.workdps(40):
        return x, y, [mpmath.power(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_power_accuracy(compiled: Program, dtype: np.dtype) -> None:
    x, y, expected = power_samples(dtype)
    assert errors(compiled.one("pow", x, y), expected, dtype).max() <= (1.1 if dtype == F32 else 1.5)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_power_special_cases_are_ieee(compiled: Program, dtype: np.dtype) -> None:
    edges = [0, 1, 2, 0.5, 3, 2.5, 4503599627370497.0, 16777217, 1e30, 1e-40, INF]
    x, y = pairs_of([*edges, *np.negative(edges), NAN], dtype)
    got, expected = compiled.one("pow", x, y), np.power(x, y)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_angles_of_points_are_ieee_in_every_direction(compiled: Program, dtype: np.dtype) -> None:
    """Zeros and infinities of either sign, NaN, denormals, and quotients that over- or underflow."""
    info = np.finfo(dtype)
    edges = [0, 1, 2.5, 1e-30, float(info.max), float(info.smallest_subnormal), INF]
    y, x = pairs_of([*edges, *np.negative(edges), NAN], dtype)
    wild, other = np.random.default_rng(12).standard_normal((2, 500)).astype(dtype)
    y, x = np.concatenate([y, wild]), np.concatenate([x, other])
    got, expected = compiled.one("atan2", y, x), np.arctan2(y, x)
    np.testing.assert_allclose(got, expected, rtol=4 * info.eps, atol=2 * float(info.smallest_subnormal))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_angles_of_points_whose_coordinates_are_alike(compiled: Program, dtype: np.dtype) -> None:
    """Where the quotient is near what the arc tangent's reduction begins at, in every direction."""
    rng = np.random.default_rng(13)
    near = np.concatenate([rng.uniform(0.2, 1.1, 600), rng.uniform(0.32, 0.36, 200), rng.uniform(0.4, 0.5, 200)])
    y, x = (np.exp(rng.uniform(-30, 30, near.size)) * rng.choice([-1, 1], near.size)).astype(dtype), near
    y, x = np.concatenate([y, y * near]).astype(dtype), np.concatenate([y * x, y]).astype(dtype)
    x *= rng.choice([-1, 1], x.size).astype(dtype)
    expected = [mpmath.atan2(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(y, x, strict=True)]
    assert errors(compiled.one("atan2", y, x), expected, dtype).max() <= 1.6


# -- arithmetic against NumPy -----------------------------------------------------------------------------------------


def pairs_of(values: Sequence[float], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.array(values, dtype), np.array(values, dtype))
    return x.ravel(), y.ravel()


def float_edges(dtype: np.dtype) -> list[float]:
    info = np.finfo(dtype)
    positive = [0, 1, 1.5, 2.5, 3, 7.25, 0.1, 1e10, float(info.max), float(info.tiny), float(info.tiny) / 8, INF]
    return [*positive, *np.negative(positive), NAN]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_rounding_and_sign_are_numpys(compiled: Program, dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    edges = [*float_edges(dtype), 0.5, -0.5, 2.0**23 + 1, 2.0**52 + 1, 8388607.5, 0.49999997, -0.3, 4.5, 5.5]
    x = np.concatenate([np.array(edges, dtype), (rng.standard_normal(300) * 20).astype(dtype)])
    for name, reference in [("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("round", np.rint)]:
        same(compiled.one(name, x), reference(x), name)
    for name, reference in [("neg", np.negative), ("abs", np.abs), ("sign", np.sign), ("sqrt", np.sqrt)]:
        same(compiled.one(name, x), reference(x), name)
    for name, classify in [("isnan", np.isnan), ("isfinite", np.isfinite), ("isinf", np.isinf)]:
        same(compiled.one(name, x, result=BOOL), classify(x), name)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_arithmetic_is_numpys(compiled: Program, dtype: np.dtype) -> None:
    x, y = pairs_of(float_edges(dtype), dtype)
    for name in ("add", "sub", "mul", "div", "copysign"):
        reference = getattr(np, {"sub": "subtract", "mul": "multiply", "div": "divide"}.get(name, name))
        same(compiled.one(name, x, y), reference(x, y), name)
    for name in ("minimum", "maximum"):  # of zeros with different signs either may come
        np.testing.assert_array_equal(compiled.one(name, x, y), getattr(np, name)(x, y), err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_float_floor_division_is_numpys(compiled: Program, dtype: np.dtype) -> None:
    rng = np.random.default_rng(2)
    x, y = pairs_of(float_edges(dtype), dtype)
    scale = 60 if dtype == F32 else 600
    wild = [(np.exp(rng.uniform(-scale, scale, 300)) * rng.choice([-1, 1], 300)).astype(dtype) for _ in range(2)]
    tame = [(rng.standard_normal(300) * s).astype(dtype) for s in (100, 3)]
    exact = [a.astype(dtype) for a in (rng.integers(-50, 50, 200) * 0.25, rng.integers(1, 9, 200) * -0.25)]
    x, y = (np.concatenate(parts) for parts in zip((x, y), wild, tame, exact, strict=True))
    same(compiled.one("remainder", x, y), np.remainder(x, y), "remainder")
    same(compiled.one("floor_divide", x, y), np.floor_divide(x, y), "floor_divide")


def whole_pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    info, rng = np.iinfo(dtype), np.random.default_rng(3)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65]
    if info.min < 0:
        edges += [-1, -2, -3, -7, -64]
    x, y = pairs_of(edges, dtype)
    random = [rng.integers(info.min, info.max, 500, dtype=dtype, endpoint=True) for _ in range(2)]
    small = rng.integers(info.min // 1000, info.max // 1000 + 9, 500).astype(dtype)
    return np.concatenate([x, random[0], random[0]]), np.concatenate([y, random[1], small])


@pytest.mark.parametrize("suffix", ["", ".single"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_arithmetic_is_numpys(compiled: Program, dtype: np.dtype, suffix: str) -> None:
    x, y = whole_pairs(dtype)
    names = {"sub": "subtract", "mul": "multiply", "shift_left": "left_shift", "shift_right": "right_shift"}
    names |= {"bit_and": "bitwise_and", "bit_or": "bitwise_or", "bit_xor": "bitwise_xor"}
    for name in WHOLE:
        if name != "pow":
            same(compiled.one(name, x, y, lanes=suffix), getattr(np, names.get(name, name))(x, y), name)
    rng = np.random.default_rng(4)
    base = np.concatenate([x, rng.integers(0, 5, 200).astype(dtype)])
    exponent = np.concatenate([np.maximum(y, 0), rng.integers(0, 40, 200).astype(dtype)])
    same(compiled.one("pow", base, exponent, lanes=suffix), np.power(base, exponent), "pow")


@pytest.mark.parametrize("dtype", [I32, I64], ids=lambda d: d.name)
def test_integer_power_with_negative_exponents_truncates(compiled: Program, dtype: np.dtype) -> None:
    base = np.array([1, -1, -1, 2, -2, 0, 5, 1], dtype)
    exponent = np.array([-1, -1, -2, -1, -3, -1, -7, np.iinfo(dtype).min], dtype)
    same(compiled.one("pow", base, exponent), np.array([1, -1, 1, 0, 0, 0, 0, 1], dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_unary_is_numpys(compiled: Program, dtype: np.dtype) -> None:
    x, _ = whole_pairs(dtype)
    for name, reference in [("sign", np.sign), ("neg", np.negative), ("abs", np.abs), ("bit_not", np.invert)]:
        same(compiled.one(name, x), reference(x), name)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_comparisons_are_numpys(compiled: Program, dtype: np.dtype) -> None:
    if dtype.kind == "f":
        x, y = pairs_of(float_edges(dtype), dtype)
    elif dtype == BOOL:
        x, y = pairs_of([0, 1], dtype)
    else:
        x, y = whole_pairs(dtype)
    names = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
    for name, reference in names.items():
        same(compiled.one(name, x, y, result=BOOL), getattr(np, reference)(x, y), name)


# -- conversions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, U32, U64], ids=lambda d: d.name)
def test_casts_are_numpys(compiled: Program, dtype: np.dtype) -> None:
    for source in DTYPES:
        if source.kind == "f":
            values = [0, -0.0, 0.4, 1.5, 2.75, 100.5, 127, 1e-40, 255]
            if dtype in (I32, I64, *FLOATS):
                values += [-v for v in values] + [2147483520.0, -2147483648.0, 123456.7]
            if dtype in FLOATS or dtype == BOOL:
                values += [NAN, INF, -INF, 1e300]
            x = np.array(values, source)
        else:
            x = np.array([False, True]) if source == BOOL else whole_pairs(source)[0]
        same(compiled.one(f"to_{dtype.name}", x, result=dtype), x.astype(dtype), f"{source} to {dtype}")


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
def test_casts_out_of_range_have_a_result(compiled: Program, source: np.dtype) -> None:
    x = np.array([NAN, INF, -INF, 1e30, -1e30, 2.0**63, 2.0**31], source)
    for dtype in (I32, I64):
        expected = np.full(x.size, -(1 << (8 * dtype.itemsize - 1)), dtype)
        if dtype == I64:
            expected[-1] = 2**31
        same(compiled.one(f"to_{dtype.name}", x, result=dtype), expected)
    same(compiled.one("to_uint8", x, result=U8), np.zeros(x.size, U8))
    negative = np.array([-1.0, 300.0, -2147483648.0], source)
    same(compiled.one("to_uint8", negative, result=U8), np.array([255, 44, 0], U8))
    if source == F64:
        edge = np.array([2147483647.5, -2147483648.5, 2147483648.0])
        low = -(2**31)
        same(compiled.one("to_int32", edge, result=I32), np.array([2**31 - 1, low, low], I32))
        large = np.array([2.0**63, 2.0**64 - 2048])
        same(compiled.one("to_uint64", large, result=U64), large.astype(U64))


# -- random bits ------------------------------------------------------------------------------------------------------


def test_threefry_gives_the_published_answers(compiled: Program) -> None:
    """The known answers of Random123 for threefry2x32 with 20 rounds."""
    key0, key1, counter0, counter1, word0, word1 = np.array(
        [
            [0, 0, 0, 0, 0x6B200159, 0x99BA4EFE],
            [0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1CB996FC, 0xBB002BE7],
            [0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3, 0xC4923A9C, 0x483DF7A0],
        ],
        np.uint32,
    ).T.copy()
    got = compiled("threefry.uint32", [key0, key1, counter0, counter1], [U32, U32])
    same(got[0], word0)
    same(got[1], word1)


def test_units_are_below_one(compiled: Program) -> None:
    words = np.array([0, 1, 255, 256, 0x80000000, 0xFFFFFFFF], np.uint32)
    unit = compiled.one("bits_to_unit", words, result=F32)
    same(unit, ((words >> 8) / np.float64(2**24)).astype(np.float32))
    assert unit.max() < 1
    other = words[::-1].copy()
    double = compiled.one("bits_to_unit64", words, other, result=F64)
    whole = (words >> 5).astype(np.uint64) * np.uint64(2**26) + (other >> 6)
    same(double, whole / np.float64(2**53))
    assert double.max() < 1


def test_powers_are_0_or_infinite_from_where_on_the_exponent_is_too_large(compiled: Program) -> None:
    x = np.array([1 - 2.0**-24, 1 + 2.0**-23, 0.5, 2, 3e38, 1e-45, 1], np.float32)
    for y in (2.0**31, 2.0**33 - 1024, 2.0**33, 2.0**33 + 1024, 3e38):
        expected = np.array([0, INF, 0, INF, INF, 0, 1], np.float32)
        same(compiled.one("pow", x, np.full(x.size, y, np.float32)), expected, str(y))
        expected = np.array([INF, 0, INF, 0, 0, INF, 1], np.float32)
        same(compiled.one("pow", x, np.full(x.size, -y, np.float32)), expected, str(-y))


def test_tables_in_registers_hold_what_the_function_is() -> None:
    """Between the intervals, where the polynomials of two meet, and in the last one, which is constant."""
    for form, reference in ((piecewise.ERF, mpmath.erf), (piecewise.TANH, mpmath.tanh)):
        table = piecewise.coefficients(form)
        assert table.shape == (form.degree + 1, piecewise.INTERVALS)
        for i in range(1, piecewise.INTERVALS - 1):
            for d in (-form.step / 2, 0.0, form.step / 2):
                value = float(np.polynomial.polynomial.polyval(d, table[:, i]))
                exact = float(reference(i * form.step + d))
                assert abs(value / exact - 1) < 2.0**-27, (form, i, d)
        assert reference((piecewise.INTERVALS - 1.5) * form.step) > 1 - 2.0**-23
        assert table[:, -1].tolist() == [1.0] + [0.0] * form.degree


def test_pieces_of_erfcx_meet() -> None:
    rest, *powers, constant = error.erfcx_pieces()
    table = np.stack([constant + rest, *powers])
    np.testing.assert_array_equal(constant, constant.astype(np.float32))
    for i in range(piecewise.INTERVALS):
        for d in (-error.ERFCX_STEP / 2, 0.0, error.ERFCX_STEP / 2):
            t = i * error.ERFCX_STEP + d
            exact = float(mpmath.exp(t * t) * mpmath.erfc(t))
            assert abs(float(np.polynomial.polynomial.polyval(d, table[:, i])) / exact - 1) < 2.0**-26, (i, d)
    assert float(mpmath.erfc((piecewise.INTERVALS - 1) * error.ERFCX_STEP)) < 2.0**-150


def test_levels_are_the_logarithms_of_their_factors() -> None:
    """Each factor takes its interval to about 1; levels are exact in float with any exponent, 0 and 1 at the ends."""
    factors, levels = logarithm.intervals()
    count = logarithm.INTERVALS
    starts = 1 + np.arange(count) / count
    np.testing.assert_array_equal(factors, factors.astype(np.float32))
    assert np.abs(starts * factors - 1).max() < 1 / 55
    assert np.abs((starts + 1 / count) * factors - 1).max() <= 1 / 32
    exact = [float(mpmath.log(factor, 2)) for factor in factors]
    np.testing.assert_allclose(levels, np.negative(exact), atol=2.0**-30, rtol=0)
    np.testing.assert_array_equal(np.float32(-149) + levels.astype(np.float32), levels - 149)
    assert (factors[0], levels[0], factors[-1], levels[-1]) == (1, 0, 0.5, 1)


def test_scaled_factors_and_their_levels_with_rests_make_one() -> None:
    for factor, level, rest in logarithm.scaled_intervals().T.tolist():
        exact = mpmath.log(mpmath.mpf(logarithm.LOG2_E) / mpmath.mpf(factor), 2)
        assert abs(level + rest - exact) < 2.0**-50
    assert np.abs(logarithm.scaled_intervals()[2]).max() < 2.0**-23


def test_logarithms_in_registers_are_whole_with_their_rests() -> None:
    """Those of numbers a sixteenth of a power of two apart, by which mantissas are divided; 0 of 1, and exact with the
    logarithm of any power of two."""
    factors, levels, rests = logarithm.logarithms()
    assert (factors[0], levels[0], rests[0]) == (1, 0, 0)
    with mpmath.workdps(40):
        for factor, level, rest in zip(factors.tolist(), levels.tolist(), rests.tolist(), strict=True):
            assert abs(mpmath.mpf(level) + mpmath.mpf(rest) + mpmath.log(mpmath.mpf(factor))) < 2.0**-90
    np.testing.assert_array_equal(levels * 2.0**logarithm.LOG_BITS % 1, 0)
    middles = 1 + np.arange(16) / 16
    np.testing.assert_allclose(factors * middles * np.where(middles < logarithm.TURN, 1, 0.5), 1, rtol=2.0**-52)


def test_powers_in_registers_are_whole_with_their_rests() -> None:
    """Half of 2^(j/16), and the two parts of a step between them, whose first times a count is exact."""
    step, step_rest = exponential.STEP
    with mpmath.workdps(40):
        for j, (power, rest) in enumerate(exponential.powers().T.tolist()):
            exact = mpmath.mpf(2) ** (mpmath.mpf(j) / exponential.TABLED - 1)
            assert abs(mpmath.mpf(power) * (1 + mpmath.mpf(rest)) / exact - 1) < 2.0**-100
            assert abs(rest) < 2.0**-53
        whole = mpmath.mpf(step) + mpmath.mpf(step_rest)
        assert abs(whole * exponential.TABLED / mpmath.log(2) - 1) < 2.0**-90
        assert mpmath.mpf(step * 923) == mpmath.mpf(step) * 923
