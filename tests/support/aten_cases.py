"""Functions of PyTorch's, by family, with operands at which both their values and their gradients are compared.

A case is a function of tensors and its operands; a family is exported as one module whose forward computes all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

aten = torch.ops.aten


class Case(NamedTuple):
    """A function and its operands; without ``gradients`` only values are compared."""

    name: str
    function: Callable[..., Any]
    operands: tuple[Any, ...]
    gradients: bool = True


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)


def positive(*shape: int) -> Any:
    return normal(*shape).abs() + 0.3


def unit(*shape: int) -> Any:
    return torch.tanh(normal(*shape)) * 0.9


def whole(*values: Any) -> Any:
    return torch.tensor(values)


def case(name: str, function: Callable[..., Any], *operands: Any, gradients: bool = True) -> Case:
    return Case(name, function, operands, gradients)


X, Y, Z = normal(3, 4), normal(3, 4, seed=1), normal(2, 3, 4)
TIES = torch.tensor([[1.0, 2.0, 2.0, 0.0], [0.0, -1.0, 0.0, 1.0]], dtype=torch.float64)
INTS, MORE = whole([7, -7, 6], [-5, 5, 0]), whole([2, 2, -4], [3, -3, 5])
BOOLS = whole([True, False, True], [False, False, True])
SMALL = INTS.to(torch.int32)
NAN = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -2.0], dtype=torch.float64)

UNARY = {
    "normal": "abs atan asinh ceil cos cosh erf erfc exp exp2 expm1 floor neg sigmoid sign sgn sin sinh square tan"
    " tanh trunc signbit sinc isnan isfinite isinf i0 positive",
    "positive": "log log10 log1p log2 sqrt rsqrt reciprocal lgamma digamma",
    "unit": "acos asin atanh erfinv",
}
DRAWS = {"normal": X, "positive": positive(3, 4), "unit": unit(3, 4)}
SPECIAL = {
    "normal": "i0e i1 i1e ndtr log_ndtr erfcx expit",
    "positive": "entr gammaln psi",
    "unit": "expm1",
}

ELEMENTWISE = [
    *(case(name, getattr(torch, name), DRAWS[draw]) for draw, names in UNARY.items() for name in names.split()),
    *(
        case(f"special.{name}", getattr(torch.special, name), DRAWS[draw])
        for draw, names in SPECIAL.items()
        for name in names.split()
    ),
    case("acosh", torch.acosh, positive(3, 4) + 1),
    case("round", torch.round, X * 3),
    case("round to decimals", lambda x: torch.round(x, decimals=1), X),
    case("logit", torch.logit, positive(3, 4) / 5),
    case("logit, eps", lambda x: torch.logit(x, 0.1), positive(3, 4) / 4),
    case("polygamma", lambda x: torch.polygamma(2, x), positive(3)),
    case("exp of ints", torch.exp, SMALL, gradients=False),
    case("sigmoid of bools", torch.sigmoid, BOOLS, gradients=False),
    case("abs at 0", torch.abs, TIES),
    case("relu at 0", F.relu, TIES),
    case("nan_to_num", torch.nan_to_num, NAN, gradients=False),
    case("isnan", torch.isnan, NAN, gradients=False),
    case("logical_not of numbers", torch.logical_not, TIES, gradients=False),
    case("bitwise_not", lambda x, y: (~x, ~y), INTS, BOOLS, gradients=False),
    *(
        case(name, getattr(F, name), X * 4)
        for name in [
            "relu6",
            "silu",
            "mish",
            "selu",
            "hardsigmoid",
            "hardswish",
            "softsign",
            "logsigmoid",
            "gelu",
            "leaky_relu",
            "elu",
            "celu",
            "hardtanh",
            "softplus",
            "tanhshrink",
            "softshrink",
            "hardshrink",
        ]
    ),
    case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), X),
    case("elu 2", lambda x: F.elu(x, 2.0), X),
    case("softplus 3", lambda x: F.softplus(x, 3.0, 2.0), X),
    case("threshold", lambda x: F.threshold(x, 0.1, 20.0), X),
    case("glu", lambda x: F.glu(x), X),
    case("prelu", F.prelu, normal(2, 3, 4), normal(3)),
]

BINARY = [
    *(
        case(name, getattr(torch, name), X, Y)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "atan2",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "hypot",
            "logaddexp",
            "copysign",
            "fmod",
            "remainder",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_or",
            "logical_xor",
            "logaddexp2",
        ]
    ),
    *(case(f"{name} of ties", getattr(torch, name), TIES, TIES.flip(1)) for name in ("maximum", "minimum")),
    *(
        case(f"{name} of ints", getattr(torch, name), INTS, MORE, gradients=False)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "fmod",
            "remainder",
            "floor_divide",
            "eq",
            "lt",
            "maximum",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
        ]
    ),
    case("alpha", lambda x, y: torch.add(x, y, alpha=2) - torch.sub(x, y, alpha=3) + torch.rsub(x, y), X, Y),
    case("div trunc", lambda x, y: torch.div(x * 5, y, rounding_mode="trunc"), X, Y, gradients=False),
    case("div floor", lambda x, y: torch.div(x * 5, y, rounding_mode="floor"), X, Y, gradients=False),
    case("div trunc of ints", lambda x, y: torch.div(x, y, rounding_mode="trunc"), INTS, MORE, gradients=False),
    case("div floor of ints", lambda x, y: torch.div(x, y, rounding_mode="floor"), INTS, MORE, gradients=False),
    case("div by a number", lambda x, y: (x / 2, y / 3, 1 / y), X, MORE, gradients=False),
    case("shift", lambda x: (x << 2, x >> 1), MORE, gradients=False),
    case("pow", torch.pow, positive(3, 4), Y),
    case("pow of numbers", lambda x: x**2 + x**3 + 2.0**x + x**-1 + x**0.5, positive(3, 4)),
    case("pow of ints", lambda x, y: (x**2, 2 ** y.abs()), INTS, MORE, gradients=False),
    case("float_power", lambda x: torch.float_power(x, 1.5), positive(3)),
    case("xlogy", torch.xlogy, positive(3, 4), positive(3, 4)),
    case("xlog1py", torch.special.xlog1py, positive(3, 4), positive(3, 4)),
    case(
        "gammainc",
        lambda a, x: (torch.special.gammainc(a, x), torch.special.gammaincc(a, x)),
        positive(3),
        positive(3) * 2,
        gradients=False,
    ),
    case("int32 + int64", torch.add, SMALL, MORE, gradients=False),
    case("float32 + int64", lambda x, y: x.float() * y, X[:2, :3], MORE, gradients=False),
    case("float32 + float64 without dimensions", lambda x, y: x.float() + y, X, normal(), gradients=False),
    case("int64 + float64 without dimensions", lambda x, y: x + y, MORE, normal(), gradients=False),
    case("bool + bool", lambda x, y: (x + y, x * y, x & y, x ^ y), BOOLS, BOOLS.flip(0), gradients=False),
    case("bool * number", lambda x: (x * 2, x * 2.5, x + True), BOOLS, gradients=False),
    case("int with a float", lambda x: (x + 1.5, x > 1.5, x == 7), INTS, gradients=False),
    case("uint8 + int8", lambda x, y: x.to(torch.uint8) + y.to(torch.int8), MORE.abs(), MORE, gradients=False),
    case("float16", lambda x, y: x.half() * y.half() + 1, X, Y, gradients=False),
    case("bfloat16", lambda x, y: (x.bfloat16() * y.bfloat16()).float(), X, Y, gradients=False),
    case(
        "casts",
        lambda x, y: (x.to(torch.int64), y.to(torch.float32), (x * 3).to(torch.int8), y.bool()),
        X,
        INTS,
        gradients=False,
    ),
    case("max and min of two", lambda x, y: torch.max(x, y) + torch.min(x, y) * 2, X, Y),
    case("ldexp", torch.ldexp, X, torch.tensor([1, 2, -1, 0]), gradients=False),
    case("nextafter", torch.nextafter, X, Y, gradients=False),
    case("clamp", lambda x: torch.clamp(x, -0.5, 0.5), X),
    case("clamp at bounds", lambda x: torch.clamp(x, 0.0, 2.0), TIES),
    case("clamp by tensors", torch.clamp, X, Y - 0.5, Y + 0.5),
    case("clamp_min", lambda x: x.clamp(min=0.1) + x.clamp_max(0.7), X),
    case("clamp of ints", lambda x: x.clamp(-3, 4), INTS, gradients=False),
    case("where", torch.where, X > 0, X, Y),
    case("where of numbers", lambda x: torch.where(x > 0, x, 0.5) + torch.where(x > 1, 2.0, 3.0), X),
    case("masked_fill", lambda x: x.masked_fill(x > 0, -1.0), X),
    case("lerp", lambda x, y, w: torch.lerp(x, y, w) + torch.lerp(x, y, 0.3), X, Y, unit(3, 4)),
    case("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5) + torch.addcdiv(x, y, z), X, Y, positive(3, 4)),
    case("in place", lambda x: x.clone().mul_(2).add_(1).relu_(), X),
    case("a slice in place", lambda x: _written(x), X),
    case("detach", lambda x: x * x.detach(), X),
]


def _written(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = 1.0
    y[1] += 2 * x[0]
    y[0:2, 1:3].mul_(3)
    return y


STRIDED = normal(4, 3)
VIEWS = [
    case("view", lambda x: x.view(4, 6), Z),
    case("reshape", lambda x: x.transpose(0, 1).reshape(-1, 2), Z),
    case("permute", lambda x: x.permute(2, 0, 1), Z),
    case("transpose", lambda x: x.transpose(-1, 0).mT, Z),
    case("t", lambda x: x.t(), X),
    case("expand", lambda x: x[:, None].expand(-1, 5, 4), X),
    case("expand_as", lambda x, y: x[0].expand_as(y) * y, X, Y),
    case("select", lambda x: x.select(1, 2) + x[:, -1], Z),
    case("slice", lambda x: x[:, 1:, ::2] + x[:, :-1, 1::2], Z),
    case("slice beyond", lambda x: x[:, -10:10], X),
    case("narrow", lambda x: x.narrow(1, 1, 2), X),
    case("squeeze", lambda x: x[:, :1].squeeze(1) + x[:1].squeeze()[0] + x[None, :, :1].squeeze((0, 2)), X),
    case("unsqueeze", lambda x: x.unsqueeze(1).unsqueeze(-1), X),
    case("flatten", lambda x: x.flatten(1), Z),
    case("unflatten", lambda x: x.unflatten(-1, (2, 2)), X),
    case("movedim", lambda x: x.movedim(0, -1), Z),
    case("diagonal", lambda x: x.diagonal(1, 1, 2), Z),
    case("diag_embed", lambda x: torch.diag_embed(x), X),
    case("unfold", lambda x: x.unfold(1, 3, 1), X),
    case("unfold apart", lambda x: x.unfold(-1, 2, 2), Z),
    case("as_strided", lambda x: x.as_strided((2, 3), (1, 2), 1), STRIDED),
    case("as_strided of a transpose", lambda x: x.t().as_strided((3, 2, 2), (3, 1, 2)), STRIDED),
    case("cat", lambda x, y: torch.cat([x, y, x], 1), X, Y),
    case("cat of dtypes", lambda x, y: torch.cat([x, y]), SMALL, MORE.float(), gradients=False),
    case("stack", lambda x, y: torch.stack([x, y], 1), X, Y),
    case("split", lambda x: torch.split(x, 3, 1)[1] * x.split([1, 3], 1)[0], X),
    case("chunk", lambda x: x.chunk(3, 1)[1], X),
    case("tensor_split", lambda x: x.tensor_split(3, 1)[0], X),
    case("unbind", lambda x: x.unbind(1)[2], Z),
    case("flip", lambda x: x.flip(0, 2), Z),
    case("roll", lambda x: x.roll(2, 1) + x.roll((1, -1), (0, 2)) + x.roll(3), Z),
    case("repeat", lambda x: x.repeat(2, 1, 3), X),
    case("repeat_interleave", lambda x: x.repeat_interleave(2, 1), X),
    case("repeat_interleave of each", lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0), X),
    case("tile", lambda x: x.tile((2,)), X),
    case("tril", lambda x: x.tril(-1) + x.triu(1), Z),
    case("rot90", lambda x: x.rot90(1, (0, 1)), X),
    case("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=3.0).sum() + F.pad(x, (-1, 1)).sum(), X),
    case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij")[1], normal(3), normal(2)),
    case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), normal(1, 8, 2, 3)),
    case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), normal(1, 2, 4, 6)),
    case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), normal(1, 4, 2, 3)),
    case(
        "new tensors",
        lambda x: (
            torch.zeros(2),
            torch.ones_like(x),
            x.new_full((2,), 3.0),
            torch.eye(3),
            torch.full((2, 2), 7),
            torch.zeros_like(x, dtype=torch.int64),
            torch.arange(5),
            torch.arange(1, 7, 2),
            torch.arange(0.0, 1.0, 0.25),
            torch.linspace(0, 1, 5),
            torch.scalar_tensor(2.0),
            torch.ones(2, dtype=torch.bool),
        ),
        X,
        gradients=False,
    ),
    case("linspace between tensors", lambda x: torch.linspace(x[0, 0], x[0, 1], 5, dtype=x.dtype), X),
    case("copy", lambda x, y: aten.copy(x, y) * x, X, normal(4), gradients=False),
    case("fill", lambda x: aten.fill(x, 2.0) * x, X),
    case("clone", lambda x: x.clone() + aten.alias(x), X),
]

ROWS = whole([0, 2, 1], [1, 1, 0])
INDEXING = [
    case("index", lambda x: x[whole(0, 2)], X),
    case("index by pairs", lambda x: x[whole([0], [1]), whole(1, -1)], X),
    case("index apart", lambda x: x[whole(0, 1), :, whole(2, 3)], Z),
    case("index behind", lambda x: x[:, whole([0, 2], [1, 1])], Z),
    case("index by a known mask", lambda x: x[:, torch.tensor([True, False, True])], Z),
    case("index_put", lambda x, v: x.index_put((whole(0, 2),), v), X, normal(2, 4)),
    case("index_put adds", lambda x, v: x.index_put((whole(0, 0), whole(1, 1)), v, accumulate=True), X, normal(2)),
    case("assignment", lambda x, v: _assigned(x, v), X, normal(2)),
    case("assignment by a mask", lambda x: _masked(x), X),
    case("index_select", lambda x: x.index_select(1, whole(3, 0, 0)), X),
    case("take", lambda x: torch.take(x, whole([0, 5], [11, 1])), X),
    case("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 0), X[:, :3], ROWS),
    case("gather", lambda x, i: x.gather(0, i), X, ROWS),
    case("gather along the last", lambda x, i: x.gather(1, i), X, ROWS),
    case("scatter", lambda x, i, v: x.scatter(1, i, v), X, ROWS[:1], normal(1, 3)),
    case("scatter of a number", lambda x, i: x.scatter(0, i, 5.0), X, ROWS),
    case("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), X, ROWS, normal(2, 3)),
    *(
        case(
            f"scatter_reduce {mode} {own}",
            lambda x, i, v, mode=mode, own=own: x.scatter_reduce(1, i, v, mode, include_self=own),
            X,
            ROWS,
            normal(2, 3),
        )
        for mode in ("sum", "mean", "amax", "amin", "prod")
        for own in (True, False)
    ),
    case("nonzero_static", lambda x: torch.nonzero_static(x > 0, size=12), X, gradients=False),
    case("index_add", lambda x, v: x.index_add(0, whole(1, 1), v, alpha=2.0), X, normal(2, 4)),
    case("index_reduce", lambda x, v: x.index_reduce(0, whole(1, 1), v, "amax"), X, normal(2, 4)),
    case("put", lambda x, v: x.put(whole(0, 5), v) + x.put(whole(1, 1), v, accumulate=True), X, normal(2)),
    case("index_copy", lambda x, v: x.index_copy(1, whole(3, 0), v), X, normal(3, 2)),
    case("index_fill", lambda x: x.index_fill(1, whole(0, 2), 4.0), X),
    case("masked_scatter", lambda x, v: x.masked_scatter(x > 0, v), X, normal(3, 4, seed=5)),
    case("select_scatter", lambda x, v: x.select_scatter(v, 1, 2), X, normal(3)),
    case("slice_scatter", lambda x, v: x.slice_scatter(v, 1, 1, 4, 2), X, normal(3, 2)),
    case("diagonal_scatter", lambda x, v: x.diagonal_scatter(v, 1), X, normal(3)),
    case("as_strided_scatter", lambda x, v: x.as_strided_scatter(v, (2, 2), (4, 2)), X, normal(2, 2), gradients=False),
    case("embedding", lambda w, i: F.embedding(i, w), X, ROWS),
    case("embedding with padding", lambda w, i: F.embedding(i, w, padding_idx=1), X, ROWS),
    case("one_hot", lambda i: F.one_hot(i, 4), ROWS, gradients=False),
    case("embedding_bag", lambda w, i: F.embedding_bag(i, w, whole(0, 2, 2), mode="mean"), X, whole(0, 1, 1, 2, 2)),
    case("embedding_bag sums", lambda w, i: F.embedding_bag(i, w, mode="sum"), X, ROWS),
    case("searchsorted", lambda x: torch.searchsorted(whole(-1.0, 0.0, 1.0).double(), x), X, gradients=False),
    case("bucketize", lambda x: torch.bucketize(x, whole(-1.0, 0.0, 1.0).double(), right=True), X, gradients=False),
]


def _assigned(x: Any, v: Any) -> Any:
    y = x.clone()
    y[whole(0, 2), whole(1, 1)] = v
    y[0, whole(3)] += v[0]
    return y


def _masked(x: Any) -> Any:
    y = x.clone()
    y[y > 0] = -1.0
    return y


REDUCTIONS = [
    *(
        case(f"{name} {dim}", lambda x, name=name, dim=dim: getattr(torch, name)(x, dim), Z)
        for name in ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"]
        for dim in (1, (0, 2))
    ),
    *(
        case(name, getattr(torch, name), X)
        for name in ["sum", "mean", "prod", "max", "min", "var", "std", "median", "argmax", "argmin"]
    ),
    *(
        case(f"{name} {keep}", lambda x, name=name, keep=keep: getattr(torch, name)(x, 1, keepdim=keep), Z)
        for name in ["sum", "prod", "amax", "max", "min", "argmax", "argmin", "median", "all", "any"]
        for keep in (False, True)
    ),
    *(
        case(f"{name} of ties", lambda x, name=name: getattr(torch, name)(x, dim=1), TIES)
        for name in ("amax", "max", "amin", "min")
    ),
    case("max of all ties", lambda x: x.max() * 2 + x.min(), TIES),
    *(
        case(f"{name} of ints", getattr(torch, name), INTS, gradients=False)
        for name in ["sum", "prod", "max", "min", "any", "all", "argmax"]
    ),
    case("sum of bools", lambda x: (x.sum(), x.sum(1), x.float().mean()), BOOLS, gradients=False),
    case("sum in a dtype", lambda x: (x.sum(dtype=torch.float32), x.mean(0, dtype=torch.float32)), X, gradients=False),
    case("any dims", lambda x: aten.any.dims(x > 1, [0, 2]), Z, gradients=False),
    case("var correction", lambda x: torch.var(x, 1, correction=0) + x.std(1, correction=2), X),
    case("var_mean", lambda x: torch.var_mean(x, 1)[0] * torch.std_mean(x, 1)[1], X),
    case("aminmax", lambda x: torch.aminmax(x, dim=1)[1], X),
    *(case(f"norm {p}", lambda x, p=p: torch.linalg.vector_norm(x, p, 1), X) for p in (1, 2, 3, float("inf"))),
    case("norm", lambda x: x.norm() + x.norm(dim=1).sum(), X),
    case("norm at 0", lambda x: (x * 0).norm(), X),
    case("matrix norms", lambda x: torch.linalg.matrix_norm(x) + torch.linalg.matrix_norm(x, 1), X),
    case("normalize", lambda x: F.normalize(x, dim=1), X),
    case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), X, Y),
    case("pairwise_distance", lambda x, y: F.pairwise_distance(x, y), X, Y),
    case("count_nonzero", lambda x: torch.count_nonzero(x, 1), INTS, gradients=False),
    case("cumsum", lambda x: x.cumsum(1), Z),
    case("cumsum of ints", lambda x: x.int().cumsum(0), INTS, gradients=False),
    case("cumprod", lambda x: x.cumprod(2), Z),
    case("logcumsumexp", lambda x: x.logcumsumexp(1), X),
    case("cummax", lambda x: (x.cummax(1), x.cummin(0)), X),
    case("cummax of ties", lambda x: (x.cummax(1), x.cummin(1)), TIES),
    case("diff", lambda x: x.diff(dim=1), X),
    case("trapezoid", lambda x: torch.trapezoid(x), X),
    case("sort", lambda x: x.sort(1)[0] * torch.arange(4.0), X),
    case("sort descending", lambda x: x.sort(0, descending=True), X),
    case("argsort", lambda x: x.argsort(1), X, gradients=False),
    case("topk", lambda x: x.topk(2, 1), X),
    case("topk smallest", lambda x: x.topk(2, 0, largest=False), X),
    case("kthvalue", lambda x: x.kthvalue(2, 1), X),
    case("softmax", lambda x: x.softmax(1), Z),
    case("log_softmax", lambda x: x.log_softmax(-1), Z),
    case("softmin", lambda x: F.softmin(x, 1), X),
]

SQUARE = normal(3, 3) @ normal(3, 3).T + 2 * torch.eye(3, dtype=torch.float64)
MATRICES = [
    case("mm", torch.mm, X, normal(4, 5)),
    case("bmm", torch.bmm, Z, normal(2, 4, 5)),
    case("matmul of batches", torch.matmul, normal(2, 1, 3, 4), normal(3, 4, 2)),
    case("matmul of vectors", lambda x, v: x @ v + v @ v, X, normal(4)),
    case("mv", torch.mv, X, normal(4)),
    case("addmm", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0), normal(5), X, normal(4, 5)),
    case("baddbmm", lambda b, x, y: torch.baddbmm(b, x, y, beta=0.0, alpha=0.5), normal(2, 3, 5), Z, normal(2, 4, 5)),
    case("addbmm", torch.addbmm, normal(3, 5), Z, normal(2, 4, 5)),
    case("addmv", torch.addmv, normal(3), X, normal(4)),
    case("addr", torch.addr, X, normal(3), normal(4)),
    case("outer", torch.outer, normal(3), normal(4)),
    case("inner", torch.inner, X, normal(2, 4)),
    case("linear", F.linear, Z, normal(5, 4), normal(5)),
    case("bilinear", F.bilinear, X, normal(3, 2), normal(5, 4, 2), normal(5)),
    case("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), Z, normal(2, 5, 4)),
    case("tensordot", lambda x, y: torch.tensordot(x, y, 2), Z, normal(3, 4, 2)),
    case("kron", torch.kron, normal(2, 2), normal(2, 3)),
    case("cdist", torch.cdist, X, normal(2, 4)),
    case("cdist 1", lambda x, y: torch.cdist(x, y, p=1.0), X, normal(2, 4)),
    case("pdist", lambda x: F.pdist(x), X),
    case("cross", lambda x, y: torch.linalg.cross(x, y), normal(4, 3), normal(4, 3, seed=1)),
    case("cholesky", lambda a: torch.linalg.cholesky(a @ a.T), SQUARE),
    case("inv", torch.linalg.inv, SQUARE),
    case("pinv", torch.linalg.pinv, Z),
    case("pinv with a bound", lambda a: torch.linalg.pinv(a, rtol=0.4) + torch.pinverse(a, 0.4), SQUARE),
    case("pinv of a symmetric matrix", lambda a: torch.linalg.pinv(a @ a.T, hermitian=True), SQUARE),
    case("pinv of the lower half", lambda a: torch.linalg.pinv(a, hermitian=True), SQUARE, gradients=False),
    case("solve", torch.linalg.solve, SQUARE, normal(3, 2)),
    case("solve of a vector", torch.linalg.solve, SQUARE, normal(3)),
    case("lu", lambda a: torch.linalg.lu(a), SQUARE),
    case("lu_solve", lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), SQUARE, normal(3, 2)),
    case("lu_unpack", lambda a: torch.lu_unpack(*torch.linalg.lu_factor(a)), SQUARE),
    case("cholesky_solve", lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)), SQUARE, normal(3, 2)),
    case("cholesky_inverse", lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)), SQUARE),
    case("householder_product", torch.linalg.householder_product, normal(4, 3), normal(2)),
    case("dist", lambda x, y: torch.dist(x, y, 3), X, Y),
    case("det", torch.linalg.det, SQUARE),
    case("slogdet", lambda a: torch.linalg.slogdet(a)[1], SQUARE),
    case(
        "triangular solve", lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False), SQUARE, normal(3, 2)
    ),
    case("qr", lambda a: torch.linalg.qr(a)[1].abs(), SQUARE),
    case("eigvalsh of a triangle", lambda a: torch.linalg.eigvalsh(a) + torch.linalg.eigvalsh(a, "U") * 2, SQUARE),
    case("eigvalsh", lambda a: torch.linalg.eigvalsh(a @ a.T), SQUARE),
    case("eigh", lambda a: torch.linalg.eigh(a @ a.T)[1].abs(), SQUARE),
    case("svdvals", torch.linalg.svdvals, SQUARE),
    case("matrix_exp", lambda a: torch.linalg.matrix_exp(a / 4), SQUARE),
    case("matrix_power", lambda a: torch.linalg.matrix_power(a, 3), SQUARE),
    case("trace", torch.trace, SQUARE),
]

FAMILIES = {
    "elementwise": ELEMENTWISE,
    "binary": BINARY,
    "views": VIEWS,
    "indexing": INDEXING,
    "reductions": REDUCTIONS,
    "matrices": MATRICES,
}
