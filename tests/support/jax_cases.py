"""Programs of JAX, a few for each primitive, that are compared with what staticgrad makes of them.

A case is a function of JAX and its arguments; floating ones are float64, and float32 in a second round. ``order`` says
which derivatives are compared: 0 none, 1 gradients, 2 those of gradients as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.scipy import special

NAN, INF = np.nan, np.inf
draw = np.random.default_rng(0)


@dataclass(frozen=True)
class JaxCase:
    """A program of JAX with arguments."""

    name: str
    fn: Callable[..., Any]
    args: Sequence[Any]
    order: int = 2
    rtol: float = 1.0  # times what is expected of most cases


def normal(*shape: int) -> np.ndarray:
    return draw.normal(size=shape)


def between(low: float, high: float, *shape: int) -> np.ndarray:
    return draw.uniform(low, high, size=shape)


X, Y = normal(3, 4), normal(3, 4)
POSITIVE = between(0.2, 3.0, 3, 4)
UNIT = between(-0.9, 0.9, 3, 4)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, INF, -INF, NAN])
KINKS = np.array([-1.5, -1.0, 0.0, 0.5, 1.0, 2.0])
INTS = np.array([7, -7, 7, -7, 0, 5, -5, 2**31 - 1, -(2**31), -(2**31)], np.int32)
BY = np.array([2, 2, -2, -2, 3, 0, 0, -1, -1, 7], np.int32)
FLAGS = np.array([[True, False, True, False], [False, False, True, True], [True, True, True, True]])

SMOOTH: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    "acos": (lax.acos, [UNIT]), "acosh": (lax.acosh, [POSITIVE + 1.1]), "add": (lax.add, [X, Y]),
    "asin": (lax.asin, [UNIT]), "asinh": (lax.asinh, [X]), "atan": (lax.atan, [X]), "atan2": (lax.atan2, [X, Y]),
    "atanh": (lax.atanh, [UNIT]), "bessel_i0e": (lax.bessel_i0e, [POSITIVE]), "bessel_i1e": (lax.bessel_i1e, [X]),
    "cbrt": (lax.cbrt, [POSITIVE]), "cos": (lax.cos, [X]), "cosh": (lax.cosh, [X]),
    "digamma": (lax.digamma, [POSITIVE]), "div": (lax.div, [X, POSITIVE]), "erf": (lax.erf, [X]),
    "erf_inv": (lax.erf_inv, [UNIT]), "erfc": (lax.erfc, [X]), "exp": (lax.exp, [X]), "exp2": (lax.exp2, [X]),
    "expm1": (lax.expm1, [X]), "integer_pow": (lambda x: lax.integer_pow(x, 3) + lax.integer_pow(x, -2), [X]),
    "lgamma": (lax.lgamma, [POSITIVE]), "log": (lax.log, [POSITIVE]), "log1p": (lax.log1p, [POSITIVE]),
    "logistic": (lax.logistic, [X]), "mul": (lax.mul, [X, Y]), "neg": (lax.neg, [X]),
    "pow": (lax.pow, [POSITIVE, Y]), "polygamma": (lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), [POSITIVE]),
    "reciprocal": (jnp.reciprocal, [X]), "rsqrt": (lax.rsqrt, [POSITIVE]), "sin": (lax.sin, [X]),
    "sinh": (lax.sinh, [X]), "sqrt": (lax.sqrt, [POSITIVE]), "square": (lax.square, [X]), "sub": (lax.sub, [X, Y]),
    "tan": (lax.tan, [UNIT]), "tanh": (lax.tanh, [X]), "stop_gradient": (lambda x: lax.stop_gradient(x) * x, [X]),
    "optimization_barrier": (lambda x: lax.optimization_barrier(x) * 2, [X]), "copy": (lambda x: jnp.copy(x) * x, [X]),
    "name": (lambda x: checkpoint_name(jnp.sin(x), "y"), [X]),
    "clamp": (lambda x, a, b: lax.clamp(a, x, b) ** 2, [X, np.full((3, 4), -0.5), np.full((3, 4), 0.7)]),
    "logsumexp": (lambda x: special.logsumexp(x, axis=0), [X]), "softmax": (lambda x: jax.nn.softmax(x), [X]),
    "gelu": (jax.nn.gelu, [X]), "silu": (jax.nn.silu, [X]), "softplus": (jax.nn.softplus, [X]),
    "log_ndtr": (special.log_ndtr, [X]), "xlogy": (special.xlogy, [X, POSITIVE]),
}  # fmt: skip

ELEMENTWISE = [
    *(JaxCase(name, fn, args) for name, (fn, args) in SMOOTH.items()),
    JaxCase("abs at 0", lax.abs, [KINKS], 1),
    JaxCase("abs of an edge", lax.abs, [EDGES], 0),
    JaxCase("sign", lax.sign, [KINKS], 1),
    JaxCase("relu at 0", jax.nn.relu, [KINKS], 1),
    JaxCase("relu6 at a bound", jax.nn.relu6, [np.array([-1.0, 0.0, 3.0, 6.0, 7.0])], 1),
    JaxCase(
        "clamp at a bound", lambda x: lax.clamp(jnp.asarray(-1.0, x.dtype), x, jnp.asarray(1.0, x.dtype)), [KINKS], 1
    ),
    JaxCase("clamp by tensors at a bound", lax.clamp, [np.zeros(6), KINKS, np.ones(6)], 1),
    JaxCase("clamp of NaN", lambda x: lax.clamp(jnp.asarray(-1.0, x.dtype), x, jnp.asarray(1.0, x.dtype)), [EDGES], 0),
    JaxCase(
        "clamp with bounds that are crossed",
        lambda x: lax.clamp(jnp.asarray(1.0, x.dtype), x, jnp.asarray(-1.0, x.dtype)),
        [KINKS],
        0,
    ),
    JaxCase("clip at a bound", lambda x: jnp.clip(x, -1.0, 1.0), [KINKS], 1),
    JaxCase("max at a tie", lax.max, [KINKS, np.array([-1.5, 2.0, 0.0, 0.0, 1.0, 3.0])], 1),
    JaxCase("min at a tie", lax.min, [KINKS, np.array([-1.5, 2.0, 0.0, 0.0, 1.0, 3.0])], 1),
    JaxCase("max and min of NaN", lambda x: (lax.max(x, x[::-1]), lax.min(x, x[::-1])), [EDGES], 0),
    JaxCase("pow at 0", lax.pow, [np.array([0.0, 0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0, 0.0])], 1),
    JaxCase("pow of edges", lambda x: lax.pow(x, jnp.asarray(2.0, x.dtype)), [EDGES], 0),
    JaxCase("pow by an integer", lambda x: lax.pow(x, jnp.int32(3)), [X], 2),
    JaxCase("sqrt at 0", lax.sqrt, [np.array([0.0, 1.0, 4.0])], 1),
    JaxCase("cbrt of negative numbers", lax.cbrt, [np.array([-8.0, -1.0, 27.0])], 1),
    JaxCase(
        "rem", lax.rem, [np.array([5.5, -5.5, 5.5, -5.5, 0.0, 3.0]), np.array([2.0, 2.0, -2.0, -2.0, 2.0, INF])], 1
    ),
    JaxCase("rem of an edge", lambda x: (lax.rem(x, jnp.asarray(0.0, x.dtype)), lax.rem(x, x + 1)), [EDGES], 0),
    JaxCase("floor, ceil", lambda x: lax.floor(x) + 2 * lax.ceil(x), [EDGES], 0),
    JaxCase("round to even", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), [EDGES], 0),
    JaxCase("round away", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), [EDGES], 0),
    JaxCase("steps have no slope", lambda x: lax.floor(x) + lax.round(x) + lax.sign(x), [X], 1),
    JaxCase("is_finite", lax.is_finite, [EDGES], 0),
    JaxCase(
        "comparisons",
        lambda x, y: [f(x, y) for f in (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)],
        [EDGES, EDGES[::-1].copy()],
        0,
    ),
    JaxCase("total order", lambda x, y: lax.sort((x, y), num_keys=2), [EDGES, EDGES[::-1].copy()], 0),
    JaxCase("select_n of bools", lambda x, y: lax.select_n(x > 0, x * y, x + y), [X, Y]),
    JaxCase(
        "select_n of integers", lambda x, y: lax.select_n(jnp.int32(X > 0) + jnp.int32(X > 1), x, y, x * y), [X, Y]
    ),
    JaxCase("nextafter", lax.nextafter, [EDGES, EDGES[::-1].copy()], 0),
    JaxCase("igamma", lax.igamma, [POSITIVE, POSITIVE[::-1].copy()], 1, 1e4),
    JaxCase("igammac", lax.igammac, [POSITIVE, POSITIVE[::-1].copy()], 1, 1e4),
    JaxCase("igamma_grad_a", lax.igamma_grad_a, [POSITIVE, POSITIVE[::-1].copy()], 0, 1e4),
    JaxCase(
        "regularized_incomplete_beta",
        lambda x: lax.betainc(jnp.asarray(1.3, x.dtype), jnp.asarray(0.7, x.dtype), x),
        [between(0.1, 0.9, 5)],
        1,
        1e4,
    ),
    JaxCase("zeta", lambda x, q: lax.zeta(x, q), [POSITIVE + 1.5, POSITIVE], 0, 1e3),
    JaxCase("reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), [X], 0),
]

# Numbers that do not fit, into each integer dtype.
CASTS = np.array([0.0, 1.9, -1.9, 300.0, -300.0, 7e4, -7e4, 3e9, -3e9, 1e19, -1e19, 3e38, NAN, INF, -INF])
INTEGERS = [jnp.int8, jnp.int16, jnp.int32, jnp.int64, jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64]


def each_dtype(fn: Callable[..., Any], *args: np.ndarray) -> Callable[[], Any]:
    """A function of arrays for each integer dtype."""
    return lambda *xs: [fn(*(x.astype(d) for x in xs)) for d in INTEGERS]


SMALL, OTHER = np.array([1, 2, 3, 100, 7, 0, 127, 9]), np.array([3, 1, 2, 7, 0, 5, 6, 9])

BITS = [
    JaxCase("saturating casts", lambda x: [x.astype(d) for d in INTEGERS], [CASTS], 0),
    JaxCase(
        "casts of integers wrap", lambda x: [x.astype(d) for d in INTEGERS], [np.array([-1, 300, 70000, 2**33])], 0
    ),
    JaxCase("casts to and from bool", lambda x: (x.astype(bool), (x > 0).astype(x.dtype)), [EDGES], 0),
    JaxCase("cast has a slope", lambda x: x.astype(jnp.float64).astype(jnp.float32) * 2, [X], 1),
    JaxCase("short floats", lambda x: (x.astype(jnp.bfloat16) + 1).astype(jnp.float32), [X], 0),
    JaxCase("division of integers truncates", lambda x, y: (lax.div(x, y), lax.rem(x, y)), [INTS, BY], 0),
    JaxCase("floor division", lambda x, y: (x // y, x % y), [INTS, np.where(BY == 0, 1, BY)], 0),
    JaxCase("division of all dtypes", each_dtype(lambda x, y: (lax.div(x, y), lax.rem(x, y))), [SMALL, OTHER], 0),
    JaxCase(
        "shifts",
        each_dtype(
            lambda x, y: (lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y))
        ),
        [np.array([1, -1, 5, -5, 100, -100]), np.array([0, 1, 7, 9, 40, 70])],
        0,
    ),
    JaxCase("bits", each_dtype(lambda x, y: (x & y, x | y, x ^ y, ~x)), [SMALL, OTHER], 0),
    JaxCase("logic", lambda a: (lax.bitwise_and(a, ~a), a | a, a ^ a, ~a, lax.max(a, ~a), lax.min(a, ~a)), [FLAGS], 0),
    JaxCase("counts of bits", each_dtype(lambda x: (lax.population_count(x), lax.clz(x))), [SMALL], 0),
    JaxCase("arithmetic wraps", each_dtype(lambda x, y: (x + y, x - y, x * y, -x)), [SMALL, OTHER], 0),
    JaxCase("signs of integers", lambda x: (lax.abs(x), lax.sign(x), lax.integer_pow(x, 3)), [INTS], 0),
    *(
        [JaxCase("mulhi", lambda x, y: lax.mulhi(x.astype(jnp.uint32), y.astype(jnp.uint32)), [INTS, BY], 0)]
        if hasattr(lax, "mulhi")
        else []
    ),
    JaxCase("bitcast", lambda x: lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32), [EDGES], 0),
    JaxCase(
        "bitcast back",
        lambda x: lax.bitcast_convert_type(x, jnp.float32),
        [np.array([0x3F800000, 1, 2**31], np.uint32)],
        0,
    ),
]

VIEWS = [
    JaxCase("broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 3, 4, 5), (1, 2)) * 2, [X], 1),
    JaxCase("reshape", lambda x: lax.reshape(x, (2, 6)) ** 2, [X]),
    JaxCase("reshape after a permutation", lambda x: lax.reshape(x, (2, 6), (1, 0)), [X], 1),
    JaxCase("transpose", lambda x: lax.transpose(x, (1, 0)) ** 2, [X]),
    JaxCase("squeeze, expand_dims", lambda x: lax.squeeze(lax.expand_dims(x, (0, 2)), (0,)) ** 2, [X]),
    JaxCase("rev", lambda x: lax.rev(x, (0, 1)) * x, [X]),
    JaxCase("concatenate", lambda x, y: lax.concatenate([x, y, x], 1) ** 2, [X, Y]),
    JaxCase("split", lambda x: lax.split(x, (1, 3), 1), [X], 1),
    JaxCase("slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 2)) ** 2, [X]),
    JaxCase("unstack", lambda x: jnp.unstack(x), [X], 1),
    JaxCase("stack", lambda x, y: jnp.stack([x, y], 1), [X, Y], 1),
    JaxCase("tile", lambda x: jnp.tile(x, (2, 3)), [X], 1),
    JaxCase("pad", lambda x: lax.pad(x, jnp.asarray(1.0, x.dtype), ((1, 2, 1), (0, 1, 2))) ** 2, [X]),
    JaxCase(
        "pad with negative widths", lambda x: lax.pad(x, jnp.asarray(1.0, x.dtype), ((-1, 2, 1), (2, -3, 0))), [X], 1
    ),
    JaxCase(
        "pad with a number that is a tensor", lambda x, v: lax.pad(x, v, ((1, 1, 1), (0, -1, 0))), [X, np.float64(2)], 1
    ),
    JaxCase("iota", lambda x: x + lax.broadcasted_iota(x.dtype, (3, 4), 1), [X], 1),
    JaxCase("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i - 1), (2, 2)) ** 2, [X, np.int32(1)]),
    JaxCase(
        "dynamic_slice is moved",
        lambda x, i: [lax.dynamic_slice(x, (i, -i), (2, 3)), lax.dynamic_slice(x, (-i, i), (2, 3))],
        [X, np.int32(9)],
        1,
    ),
    JaxCase(
        "dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :3], (i, i)) ** 2, [X, Y, np.int32(1)]
    ),
    JaxCase(
        "dynamic_update_slice is moved",
        lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :3], (-i, i)),
        [X, Y, np.int32(9)],
        1,
    ),
    JaxCase(
        "dynamic_update_slice of three axes",
        lambda x, y, i: lax.dynamic_update_slice(x, y, (i, jnp.uint8(0), i)),
        [normal(4, 3, 5), normal(2, 3, 2), np.uint8(1)],
        1,
    ),
    JaxCase("dynamic indices", lambda x, i: x[i] * x[:, i], [normal(4, 4), np.int32(2)]),
    JaxCase("an index from the end", lambda x, i: x[i], [X, np.int32(-1)], 1),
]

WHERE = np.array([0, 2, 2, 1], np.int32)
OUT = np.array([0, 5, -1, 1, -7], np.int64)
MODES = ("clip", "fill", "promise_in_bounds")


def gathered(mode: str) -> Callable[[Any, Any], Any]:
    """A gather of windows of 2 × 3 at starts along both axes."""
    dims = lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(), start_index_map=(1, 0))
    return lambda x, i: lax.gather(x, i, dims, (2, 3), mode=mode) ** 2


def scattered(op: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """A scatter of windows of 2 × 3."""
    dims = lax.ScatterDimensionNumbers(
        update_window_dims=(0, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(1, 0)
    )
    return lambda x, i, y: op(x, i, y, dims, mode=mode)


STARTS = np.array([[0, 1], [2, 3], [1, 0]], np.int32)
LOST = np.array([[0, 1], [4, 3], [-1, 0], [1, 9]], np.int32)
TALL = normal(5, 6)

INDEXING = [
    JaxCase("gather rows", lambda x, i: x[i] ** 2, [X, WHERE]),
    JaxCase("gather by constants", lambda x: x[WHERE, 1:3], [X], 1),
    JaxCase("gather elements", lambda x, i: x[i, i] ** 2, [X, WHERE]),
    JaxCase("gather along two axes that are apart", lambda x, i: x[i, :, i], [normal(3, 2, 4), WHERE], 1),
    JaxCase("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 0), [X, draw.integers(0, 3, (2, 4))], 1),
    JaxCase("gather under vmap", jax.vmap(lambda x, i: x[i] * 2), [X, draw.integers(0, 4, (3, 2))], 1),
    JaxCase("gather of integers that fills", lambda x, i: x.at[i].get(mode="fill"), [np.arange(3), OUT], 0),
    JaxCase("gather with a fill value", lambda x, i: x.at[i].get(mode="fill", fill_value=7), [X, OUT], 1),
    JaxCase("indices of jnp.take", lambda x, i: jnp.take(x, i, axis=1), [X, OUT], 0),
    *(JaxCase(f"gather out of range, {m}", lambda x, i, m=m: x.at[i].get(mode=m), [X, OUT], 1) for m in MODES),
    *(JaxCase(f"windows, {m}", gathered(m), [TALL, STARTS]) for m in MODES),
    *(JaxCase(f"windows out of range, {m}", gathered(m), [TALL, LOST], 0) for m in MODES[:2]),
    *(JaxCase(f"windows at constants, {m}", lambda x, m=m: gathered(m)(x, LOST), [TALL], 0) for m in MODES[:2]),
    *(
        JaxCase(
            f"{op} of rows",
            lambda x, i, y, op=op: getattr(x.at[i], op)(y),
            [X, np.array([2, 0]), Y[:2]],
            int(op != "multiply"),
        )
        for op in ("set", "add", "multiply", "min", "max", "subtract")
    ),
    *(
        JaxCase(f"{op} of rows out of range", lambda x, i, y, op=op: getattr(x.at[i], op)(y), [X, OUT, normal(5, 4)], 0)
        for op in ("add", "multiply", "min", "max")
    ),
    JaxCase("set of rows out of range", lambda x, i, y: x.at[i].set(y), [X, np.array([7, 1, -9]), Y], 1),
    JaxCase(
        "set of rows out of range, clip", lambda x, i, y: x.at[i].set(y, mode="clip"), [X, np.array([7, 1]), Y[:2]], 1
    ),
    JaxCase("add twice", lambda x, i, y: x.at[i].add(y) ** 2, [X, WHERE, normal(4, 4)]),
    JaxCase("set elements", lambda x, i, y: x.at[i, i].set(y), [normal(4, 4), np.array([3, 1]), normal(2)], 1),
    JaxCase(
        "add under vmap", jax.vmap(lambda x, i, y: x.at[i].add(y)), [X, draw.integers(0, 4, (3, 2)), normal(3, 2)], 1
    ),
    JaxCase("set of bools", lambda x, i: x.at[i].set(True), [FLAGS, np.array([1])], 0),
    JaxCase("set of constants", lambda x: x.at[1, 2].set(5.0).at[:, 0].add(1.0), [X], 1),
    *(
        JaxCase(f"scatter-add of windows, {m}", scattered(lax.scatter_add, m), [TALL, STARTS, normal(2, 3, 3)], 1)
        for m in MODES
    ),
    *(
        JaxCase(
            f"scatter-add of windows out of range, {m}", scattered(lax.scatter_add, m), [TALL, LOST, normal(2, 4, 3)], 0
        )
        for m in MODES[:2]
    ),
    JaxCase("segment_sum", lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0]), 3), [X], 1),
]

TIES = np.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 1.0], [NAN, 1.0, 5.0, 0.0]])
PLAIN_TIES = TIES[:2]

REDUCTIONS = [
    JaxCase("reduce_sum", lambda x: (jnp.sum(x, 0) ** 2, jnp.sum(x) ** 2), [X]),
    JaxCase("reduce_prod", lambda x: jnp.prod(x, 1), [X]),
    JaxCase("reduce_prod with zeros", lambda x: jnp.prod(x, 1), [np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]])], 1),
    JaxCase("reduce_max at ties", lambda x: jnp.max(x, 1), [PLAIN_TIES], 1),
    JaxCase("reduce_min at ties", lambda x: jnp.min(x, 0), [PLAIN_TIES], 1),
    JaxCase("extremes of NaN", lambda x: (jnp.max(x, 1), jnp.min(x, 1), jnp.argmax(x, 1), jnp.argmin(x, 1)), [TIES], 0),
    JaxCase(
        "sums of integers wrap",
        lambda x: (jnp.sum(x.astype(jnp.int8), dtype=jnp.int8), jnp.max(x), jnp.prod(x)),
        [INTS],
        0,
    ),
    JaxCase(
        "reduce_and, reduce_or, reduce_xor",
        lambda a: (jnp.all(a, 1), jnp.any(a, 0), lax.reduce_xor(a, (0,))),
        [FLAGS],
        0,
    ),
    JaxCase("sums of bools", lambda a: (jnp.sum(a), jnp.mean(a)), [FLAGS], 0),
    JaxCase("argmax", lambda x: (lax.argmax(x, 0, jnp.int32), lax.argmin(x, 1, jnp.int64)), [X], 0),
    JaxCase(
        "reduce by a function",
        lambda x: lax.reduce(x, jnp.asarray(0.5, x.dtype), lambda a, b: a * b + 0.25 * a + b, (1,)),
        [X],
        0,
    ),
    JaxCase(
        "reduce of two by a function",
        lambda x, i: lax.reduce(
            (x, i),
            (jnp.asarray(-INF, x.dtype), np.int32(0)),
            lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] > b[0], a[1], b[1])),
            (0,),
        ),
        [X, draw.integers(0, 9, (3, 4)).astype(np.int32)],
        0,
    ),
    JaxCase("cumsum", lambda x: (lax.cumsum(x, 1) ** 2, lax.cumsum(x, 0, reverse=True)), [X]),
    JaxCase("cumprod", lambda x: lax.cumprod(x, 1, reverse=True), [X]),
    JaxCase("cummax, cummin", lambda x: (lax.cummax(x, 1), lax.cummin(x, 0, reverse=True)), [X], 1),
    JaxCase("cumlogsumexp", lambda x: lax.cumlogsumexp(x, 1), [X]),
    JaxCase("cumsum of integers", lambda x: lax.cumsum(x), [INTS], 0),
    JaxCase("sort", lambda x: lax.sort(x, 0) ** 2, [X]),
    JaxCase("sort of edges", lambda x: (lax.sort(x), jnp.argsort(x)), [EDGES], 0),
    JaxCase("sort of two", lambda x, y: lax.sort((x, y), 1), [X, Y], 1),
    JaxCase(
        "sort by two keys",
        lambda i, x: lax.sort((i, x, x * 2), 0, num_keys=2),
        [np.array([1, 0, 1, 0, 1]), normal(5)],
        1,
    ),
    JaxCase(
        "searchsorted",
        lambda x, v: (jnp.searchsorted(x, v), jnp.searchsorted(x, v, side="right")),
        [np.sort(X.ravel()), Y],
        0,
    ),
    JaxCase("top_k", lambda x: lax.top_k(x, 2), [X], 1),
    JaxCase("approx_top_k", lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 2)), [X], 0),
]


def convolved(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> JaxCase:
    """A convolution of arrays of these shapes."""
    given = {"window_strides": (1,) * (len(x) - 2), "padding": "SAME", **options}
    name = ", ".join(f"{key} {value}" for key, value in options.items())
    return JaxCase(
        f"conv {x} {w} {name}", lambda x, w: lax.conv_general_dilated(x, w, **given), [normal(*x), normal(*w)], 1
    )


def windowed(op: Any, init: Any, window: Sequence[int], strides: Sequence[int], padding: Any, **options: Any) -> Any:
    return lambda x: lax.reduce_window(x, np.asarray(init, x.dtype), op, window, strides, padding, **options)


IMAGE = normal(1, 6, 7, 2)
COARSE = np.round(normal(6, 7) * 2)

WINDOWS = [
    JaxCase("reduce_window_sum", windowed(lax.add, 0, (1, 2, 3, 1), (1, 1, 2, 1), "SAME"), [IMAGE], 1),
    JaxCase(
        "reduce_window_sum, dilated",
        windowed(lax.add, 0, (2, 3), (1, 2), ((1, 0), (2, -1)), base_dilation=(2, 1), window_dilation=(1, 2)),
        [COARSE],
        1,
    ),
    JaxCase("reduce_window_max", windowed(lax.max, -INF, (1, 2, 3, 1), (1, 2, 2, 1), "VALID"), [IMAGE], 1),
    JaxCase("reduce_window_max at ties", windowed(lax.max, -INF, (3, 3), (1, 2), "SAME"), [COARSE], 1),
    JaxCase("reduce_window_min", windowed(lax.min, INF, (2, 2), (1, 1), "SAME"), [COARSE], 1),
    JaxCase(
        "reduce_window_max of integers",
        lambda x: windowed(lax.max, np.iinfo(np.int64).min, (3,), (1,), "SAME")(x),
        [SMALL],
        0,
    ),
    JaxCase(
        "reduce_window by a function", windowed(lambda a, b: a * b + a, 1.5, (2, 2), (1, 1), "VALID"), [normal(3, 3)], 0
    ),
    JaxCase("reduce_window_mul", windowed(lax.mul, 1.0, (2, 2), (1, 1), "SAME"), [normal(3, 3)], 0),
    JaxCase(
        "the gradient of a pool",
        jax.grad(lambda x: (windowed(lax.max, -INF, (2, 2), (2, 2), "VALID")(x) ** 2).sum()),
        [normal(4, 6)],
        1,
    ),
    JaxCase(
        "the gradient of a pool at ties",
        jax.grad(lambda x: (windowed(lax.max, -INF, (3, 3), (2, 1), "SAME")(x) ** 2).sum()),
        [COARSE],
        0,
    ),
    JaxCase(
        "the tangent of a pool",
        lambda x, t: jax.jvp(windowed(lax.min, INF, (2, 2), (1, 1), "VALID"), (x,), (t,))[1],
        [normal(4, 5), normal(4, 5)],
        1,
    ),
    convolved((2, 3, 5, 6), (4, 3, 3, 2)),
    convolved((2, 3, 5, 6), (4, 3, 3, 3), window_strides=(2, 1), padding=((1, 2), (0, 3))),
    convolved((2, 3, 5, 6), (4, 3, 3, 3), rhs_dilation=(2, 1), padding=((-1, 2), (2, 2))),
    convolved((2, 3, 4, 4), (4, 3, 3, 3), lhs_dilation=(2, 3), padding=((2, 1), (1, 2))),
    convolved((2, 4, 5, 5), (6, 2, 3, 3), feature_group_count=2),
    convolved((4, 3, 5, 5), (6, 3, 3, 3), batch_group_count=2),
    convolved((2, 5, 6, 3), (3, 2, 3, 4), dimension_numbers=("NHWC", "HWIO", "NHWC")),
    convolved((2, 3, 8), (4, 3, 3), window_strides=(2,)),
    convolved((1, 2, 4, 3, 4), (2, 2, 2, 2, 3)),
    convolved((2, 3), (4, 3), padding=()),
    JaxCase(
        "the gradient of a strided convolution",
        jax.grad(lambda x, w: (lax.conv_general_dilated(x, w, (2, 2), "SAME") ** 2).sum(), argnums=(0, 1)),
        [normal(2, 3, 5, 5), normal(4, 3, 3, 3)],
        0,
    ),
]

SPD = X[:, :3] @ X[:, :3].T + 3 * np.eye(3)
SQUARE = normal(3, 3) + 3 * np.eye(3)


def dotted(contract: Any, batch: Any = ((), ()), **options: Any) -> Callable[..., Any]:
    return lambda x, y: lax.dot_general(x, y, (contract, batch), **options)


MATRICES = [
    JaxCase("dot_general", dotted(((1,), (0,))), [X, Y.T.copy()]),
    JaxCase("dot_general with batch axes", dotted(((2,), (1,)), ((0,), (2,))), [normal(2, 3, 4), normal(5, 4, 2)]),
    JaxCase("dot_general of two axes", dotted(((0, 2), (1, 0))), [normal(2, 3, 4), normal(4, 2, 5)], 1),
    JaxCase("dot_general without contraction", dotted(((), ())), [normal(2), normal(3)], 1),
    JaxCase(
        "dot_general of integers",
        dotted(((0,), (0,)), preferred_element_type=jnp.int32),
        [np.array([100, 100], np.int8), np.array([100, 2], np.int8)],
        0,
    ),
    JaxCase(
        "dot_general of a wider type",
        lambda x: lax.dot_general(
            x.astype(jnp.float32), x.astype(jnp.float32), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float64
        ),
        [X],
        0,
    ),
    JaxCase("einsum", lambda x, y: jnp.einsum("ij,kj,k->i", x, y, y[:, 0]), [X, Y]),
    JaxCase("cholesky", lambda x: lax.linalg.cholesky(x), [SPD]),
    JaxCase("cholesky of what is not positive definite", lambda x: lax.linalg.cholesky(x), [SPD - 4 * np.eye(3)], 0),
    JaxCase("cholesky of one triangle", lambda x: lax.linalg.cholesky(x, symmetrize_input=False), [np.tril(SPD)], 0),
    *(
        JaxCase(
            f"triangular_solve {options}",
            lambda a, b, options=options: lax.linalg.triangular_solve(a, b, **options),
            [SQUARE, normal(3, 3)],
        )
        for options in (
            {"left_side": True, "lower": True},
            {"left_side": True, "lower": False, "transpose_a": True},
            {"left_side": False, "lower": True, "unit_diagonal": True},
            {"left_side": False, "lower": False},
            {"left_side": False, "lower": True, "transpose_a": True},
        )
    ),
    JaxCase("qr", lambda x: jnp.linalg.qr(x), [normal(5, 3)], 1),
    JaxCase("qr of a wide matrix", lambda x: jnp.linalg.qr(x)[1], [normal(2, 4)], 0),
    JaxCase("svd", lambda x: jnp.linalg.svd(x, full_matrices=False)[1], [X], 1),
    JaxCase(
        "svd, both sides", lambda x: (lambda u, s, v: (u * s) @ v)(*jnp.linalg.svd(x, full_matrices=False)), [X], 1
    ),
    JaxCase("singular values", lambda x: jnp.linalg.svd(x, compute_uv=False), [X], 1),
    JaxCase("eigh", lambda x: (jnp.linalg.eigh(x)[0], jnp.abs(jnp.linalg.eigh(x)[1])), [SPD], 1),
    JaxCase("eigvalsh", lambda x: jnp.linalg.eigvalsh(x), [SPD], 1),
    JaxCase("lu", lambda x: lax.linalg.lu(x), [SQUARE], 1),
    JaxCase("solve", lambda a, b: jnp.linalg.solve(a, b), [SQUARE, normal(3, 2)]),
    JaxCase("cho_solve", lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), [SPD, normal(3)]),
    JaxCase(
        "det, slogdet, inv", lambda x: (jnp.linalg.det(x), jnp.linalg.slogdet(x)[1], jnp.linalg.inv(x)), [SQUARE], 1
    ),
    JaxCase(
        "lu_pivots_to_permutation",
        lambda p: lax.linalg.lu_pivots_to_permutation(p, 4),
        [np.array([2, 3, 2], np.int32)],
        0,
    ),
    JaxCase(
        "tridiagonal_solve",
        lambda d, b: lax.linalg.tridiagonal_solve(d * 0.1, d + 3, d * 0.2, b),
        [between(0.5, 1.0, 4), normal(4, 2)],
        1,
    ),
    JaxCase(
        "householder_product", lambda a, t: lax.linalg.householder_product(a, t), [normal(4, 2), between(0.5, 1, 2)], 0
    ),
    JaxCase(
        "cholesky_update", lambda r, w: lax.linalg.cholesky_update(jnp.linalg.cholesky(r).T, w), [SPD, normal(3)], 0
    ),
    JaxCase(
        "symmetric_product",
        lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True),
        [X, SPD],
        0,
    ),
    JaxCase(
        "ragged_dot",
        lambda x, w: lax.ragged_dot(x, w, jnp.array([2, 0, 3], jnp.int32)),
        [normal(5, 2), normal(3, 2, 4)],
        1,
    ),
    JaxCase("cg", lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: a @ x, b)[0], [SPD, normal(3)], 0, 1e5),
]


@jax.custom_jvp
def tripled(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y


@tripled.defjvp
def _tripled_rule(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return tripled(x, y), 3 * jnp.cos(x) * y * dx + jnp.sin(x) * dy  # three times what is right


@jax.custom_vjp
def clipped(x: Any, y: Any) -> Any:
    return jnp.exp(x) * y


def _clipped_forward(x: Any, y: Any) -> Any:
    return clipped(x, y), (x, y)


clipped.defvjp(_clipped_forward, lambda kept, ct: (5 * kept[0] * ct, jnp.exp(kept[0]) * ct))


def halving(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] > 1.0, lambda s: (s[0] / 2, s[1] + 1), (x, 0))


def folded(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c.sum()), jnp.zeros(4, x.dtype), x)


CONTROL = [
    JaxCase("jit", jax.jit(lambda x: jax.jit(jnp.sin)(x) * 2), [X]),
    JaxCase("remat", jax.checkpoint(lambda x, y: jnp.sin(x @ y.T)), [X, Y]),
    JaxCase("cond", lambda x: lax.cond(x[0, 0] > 0, lambda x: x**2, lambda x: jnp.sin(x), x), [X]),
    *(
        JaxCase(f"switch {n}", lambda x, n: lax.switch(n, [jnp.sin, jnp.cos, jnp.exp], x), [X, np.int32(n)])
        for n in (-3, 0, 1, 2, 9)
    ),
    JaxCase("switch of a constant", lambda x: lax.switch(7, [jnp.sin, jnp.cos], x), [X], 1),
    JaxCase("scan", folded, [X, normal(4, 4)]),
    JaxCase("scan in reverse", lambda x: lax.scan(lambda c, r: (c * r, c), jnp.ones(4, x.dtype), x, reverse=True), [X]),
    JaxCase("scan without rows", lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3), [X]),
    JaxCase("fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, c: c * x[i % 3, 0] + i, x[0]), [X]),
    JaxCase("map", lambda x: lax.map(lambda r: jnp.sum(r) ** 2, x), [X]),
    JaxCase("while", halving, [np.float64(37.0)], 0),
    JaxCase("while under vmap", jax.vmap(lambda x: halving(x)[0]), [np.array([37.0, 0.5, 5.0])], 0),
    JaxCase("cond under vmap", jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.exp, x)), [normal(4)]),
    JaxCase("associative_scan", lambda x: lax.associative_scan(jnp.multiply, x), [normal(6)], 1),
    JaxCase("custom_jvp", tripled, [X, Y]),
    JaxCase(
        "custom_jvp in a scan", lambda x: lax.scan(lambda c, r: (tripled(c, r), c), jnp.ones(4, x.dtype), x), [X], 1
    ),
    JaxCase("custom_vjp", clipped, [X, Y]),
    JaxCase(
        "custom_vjp in a scan",
        lambda x: lax.scan(lambda c, r: (clipped(0.1 * c, r), c), jnp.ones(4, x.dtype), x),
        [X],
        1,
    ),
    JaxCase("custom_vjp under vmap", jax.vmap(clipped), [X, Y], 1),
    JaxCase("a gradient inside", lambda x: jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(x), [X]),
    JaxCase(
        "custom_root",
        lambda a: lax.custom_root(
            lambda x: x**2 - a,
            a,
            lambda f, x: lax.fori_loop(0, 20, lambda i, x: x - f(x) / (2 * x), x),
            lambda g, y: y / g(jnp.ones_like(y)),
        ),
        [np.float64(2.0)],
        1,
    ),
    JaxCase(
        "custom_linear_solve",
        lambda a, b: lax.custom_linear_solve(lambda x: a * x, b, lambda m, b: b / a),
        [POSITIVE, X],
        0,
    ),
]

KEY = np.array([17, 42], np.uint32)


def keyed(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda words, *xs: fn(jax.random.wrap_key_data(words), *xs)


RANDOM = [
    JaxCase(
        "bits",
        keyed(lambda k: [jax.random.bits(k, (5,), d) for d in (jnp.uint8, jnp.uint16, jnp.uint32, jnp.uint64)]),
        [KEY],
        0,
    ),
    JaxCase(
        "uniform",
        keyed(lambda k: (jax.random.uniform(k, (7,), jnp.float32), jax.random.uniform(k, (7,), jnp.float64))),
        [KEY],
        0,
    ),
    JaxCase("normal", keyed(lambda k: jax.random.normal(k, (3, 3), jnp.float64)), [KEY], 0, 1e2),
    JaxCase("split", keyed(lambda k: [jax.random.bits(each, (3,)) for each in jax.random.split(k, 3)]), [KEY], 0),
    JaxCase("fold_in", keyed(lambda k: jax.random.key_data(jax.random.fold_in(k, 5))), [KEY], 0),
    JaxCase("seed", lambda n: (jax.random.key_data(jax.random.key(n)), jax.random.PRNGKey(n)), [np.int64(-7)], 0),
    JaxCase("a key that is constant", lambda x: x + jax.random.uniform(jax.random.key(1), (3, 4), x.dtype), [X], 1),
    JaxCase("legacy keys", lambda k: jax.random.randint(k, (6,), 0, 10), [KEY], 0),
    JaxCase("permutation", keyed(lambda k: jax.random.permutation(k, 9)), [KEY], 0),
    JaxCase("categorical", keyed(lambda k, x: jax.random.categorical(k, x)), [KEY, X], 0),
    JaxCase(
        "exponential, gumbel",
        keyed(lambda k: (jax.random.exponential(k, (4,), jnp.float64), jax.random.gumbel(k, (4,), jnp.float64))),
        [KEY],
        0,
        1e2,
    ),
    JaxCase("bernoulli", keyed(lambda k: jax.random.bernoulli(k, 0.3, (9,))), [KEY], 0),
    JaxCase(
        "keys in a scan",
        keyed(lambda k: lax.scan(lambda k, _: (jax.random.split(k)[0], jax.random.bits(k)), k, None, length=3)[1]),
        [KEY],
        0,
    ),
    JaxCase(
        "keys under vmap",
        keyed(lambda k: jax.vmap(lambda k: jax.random.uniform(k, (2,), jnp.float64))(jax.random.split(k, 4))),
        [KEY],
        0,
    ),
    JaxCase("gamma", keyed(lambda k, a: jax.random.gamma(k, a)), [KEY, POSITIVE], 0, 1e3),
    JaxCase(
        "truncated normal", keyed(lambda k: jax.random.truncated_normal(k, -1.0, 2.0, (5,), jnp.float64)), [KEY], 0, 1e3
    ),
    JaxCase("clone", keyed(lambda k: jax.random.bits(jax.random.clone(k))), [KEY], 0),
    JaxCase(
        "samplers of integers",
        keyed(
            lambda k: (
                jax.random.poisson(k, jnp.linspace(0.5, 30, 12)),
                jax.random.choice(k, 20, (8,), replace=False),
                jax.random.choice(k, 4, (8,), p=jnp.array([0.1, 0.2, 0.3, 0.4])),
                jax.random.rademacher(k, (9,)),
            )
        ),
        [KEY],
        0,
    ),
    JaxCase(
        "beta, dirichlet",
        keyed(
            lambda k: (
                jax.random.beta(k, 2.0, jnp.linspace(0.1, 5, 6), dtype=jnp.float64),
                jax.random.dirichlet(k, jnp.array([0.5, 1.0, 3.0]), (4,), jnp.float64),
            )
        ),
        [KEY],
        0,
        1e3,
    ),
]

# -- complex numbers ---------------------------------------------------------------------------------------------------

Z = lax.complex
SIGNAL, KERNEL = normal(8), normal(3)

COMPLEX = [
    JaxCase("power spectrum", lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, [SIGNAL]),
    JaxCase("rfft and irfft of odd and even sizes", lambda x: [
        jnp.fft.irfft(jnp.fft.rfft(x, n) * jnp.fft.rfft(x[::-1], n), n) for n in (7, 8, 10)], [SIGNAL]),
    JaxCase("fft and ifft", lambda x: (
        jnp.fft.fft(x).imag, jnp.fft.ifft(jnp.fft.fft(x) * jnp.exp(-1j * jnp.arange(8.0))).real,
        jnp.fft.fftshift(jnp.fft.fft(x, norm="ortho")).real), [SIGNAL]),
    JaxCase("fft of two axes", lambda x: (
        jnp.abs(jnp.fft.fft2(x)), jnp.fft.ifft2(x * (1 + 2j)).imag, jnp.fft.irfftn(jnp.fft.rfftn(x) * 1j)), [X]),
    JaxCase("fft of columns", lambda x: jnp.fft.fft(x, axis=0).real, [X]),
    JaxCase("spectrum at 0", lambda x: jnp.abs(jnp.fft.fft(x * 0)) + jnp.abs(Z(x * 0, x * 0)), [SIGNAL], 1),
    JaxCase("gradient of a spectrum", jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.rfft(x)) ** 3)), [SIGNAL]),
    JaxCase("fftconvolve", jax.scipy.signal.fftconvolve, [SIGNAL, KERNEL]),
    JaxCase("hilbert", lambda x: jnp.abs(jnp.fft.ifft(jnp.fft.fft(x) * np.array([1, 2, 2, 2, 1, 0, 0, 0]))), [SIGNAL]),
    JaxCase("arithmetic", lambda x, y: [part for z, w in [(Z(x, y), Z(y, x + 2))] for v in (
        z + w, z - w, z * w, z / w, -z, jnp.conj(z), jnp.square(z), z**3, (z + 2j) ** -2, z * 2.0, z + 1)
        for part in (v.real, v.imag)], [X, Y], 1),
    JaxCase("functions", lambda x, y: [part for z in [Z(x, y)] for v in (
        jnp.exp(z), jnp.log(z), jnp.sqrt(z), jnp.sin(z), jnp.cos(z), jnp.sign(z), lax.stop_gradient(z) * z)
        for part in (v.real, v.imag)] + [jnp.angle(Z(x, y)), jnp.abs(Z(x, y))], [X, Y], 1, 10),
    JaxCase("comparisons", lambda x, y: [
        Z(x, y) == Z(x, x), Z(x, y) != Z(x, y), jnp.isfinite(Z(x, y)), Z(x, y).astype(bool)], [X, Y], 0),
    JaxCase("views", lambda x, y: [v.real * 2 + v.imag for z in [Z(x, y)] for v in (
        z.T, z[1:, ::2], z[::-1], z.reshape(2, 6), z[None], jnp.squeeze(z[:1]), jnp.concatenate([z, z * 1j]),
        jnp.stack([z, z]), jnp.pad(z, 1), jnp.tile(z, (2, 1)), *jnp.split(z, 2, axis=1), jnp.broadcast_to(z, (2, 3, 4)),
        lax.dynamic_slice(z, (jnp.argmax(x[:, 0]), 0), (1, 4)), z[jnp.array([0, 2, 0])], z.at[0].set(1j),
        z.at[jnp.array([0, 0])].add(z[:2]), jnp.where(x > 0, z, 1j), jnp.copy(z), lax.optimization_barrier(z),
        lax.dynamic_update_slice(z, z[:1] * 2, (1, 0)), jax.device_put(z))], [X, Y], 1),
    JaxCase("sums and products", lambda x, y: [v.real * 2 + v.imag for z in [Z(x, y)] for v in (
        z.sum(), z.mean(0), z.prod(1), jnp.cumsum(z, 1), z @ z.T, jnp.einsum("ij,kj->ik", z, z.conj()))], [X, Y]),
]  # fmt: skip

GROUPS: dict[str, list[JaxCase]] = {
    "elementwise": ELEMENTWISE, "bits": BITS, "views": VIEWS, "indexing": INDEXING, "reductions": REDUCTIONS,
    "windows": WINDOWS, "matrices": MATRICES, "control": CONTROL, "random": RANDOM, "complex": COMPLEX,
}  # fmt: skip
