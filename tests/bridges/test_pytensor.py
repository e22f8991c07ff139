"""PyTensor's graphs, converted and run by its mode "STATICGRAD", against PyTensor's own Python code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staticgrad as sg

pytensor = pytest.importorskip("pytensor")

import pytensor.tensor as pt  # noqa: E402
from pytensor.compile.mode import Mode  # noqa: E402
from pytensor.ifelse import ifelse  # noqa: E402
from pytensor.raise_op import Assert, CheckAndRaise  # noqa: E402
from pytensor.scan.utils import until  # noqa: E402
from pytensor.tensor import blas  # noqa: E402
from pytensor.tensor.random.basic import NormalRV  # noqa: E402

import staticgrad.pytensor as sp  # noqa: E402

PY = Mode("py", None)
STRICT = sp.mode(strict=True)
XLOGY = pt.special.xlogy if hasattr(pt.special, "xlogy") else pt.xlogx.xlogy0  # in 3, in 2
UNREWRITTEN = Mode(sp.StaticgradLinker(strict=True), None)


@pytest.fixture(autouse=True)
def no_c_code() -> Iterator[None]:
    with pytensor.config.change_flags(cxx="", linker="py"):
        yield


def scan(*args: Any, **kwargs: Any) -> Any:
    return pytensor.scan(*args, return_updates=False, **kwargs)


def agree(inputs: list[Any], outputs: list[Any], values: list[Any], *, mode: Any = STRICT, rtol: float = 1e-9) -> Any:
    """Both modes give equal values, shapes and dtypes; the function in ours comes back."""
    ours = pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    expected = pytensor.function(inputs, outputs, mode=PY, on_unused_input="ignore")(*values)
    for variable, a, b in zip(outputs, ours(*values), expected, strict=True):
        same(a, b, rtol, str(variable))
    return ours


def same(actual: Any, expected: Any, rtol: float = 1e-9, what: str = "") -> None:
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), what
    rtol = max(rtol, 1e-6) if expected.dtype == np.float32 else rtol
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-12, err_msg=what)


def data(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def drawn(generator: Any, mean: Any, size: int) -> Any:
    """The generator after a draw, and the numbers."""
    node = NormalRV().make_node(generator, pt.as_tensor([size]), pt.as_tensor(mean), pt.as_tensor(1.0))
    return node.outputs


x, y = pt.dmatrix("x"), pt.dmatrix("y")
v, w = pt.dvector("v"), pt.dvector("w")
n = pt.lscalar("n")
k = pt.lvector("k")
b = pt.bmatrix("b")
SPD = pt.dot(x, x.T) + 3 * pt.eye(3)
X, Y, V, W = data(3, 4), data(3, 4, seed=1), data(5, seed=2), data(5, seed=3)
K = np.array([2, -1, 0, 2])
B = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)

GRAPHS: dict[str, list[Any]] = {
    "arithmetic": [x + y, x * y - 2, x / y, x // y, x % y, x**2, abs(x) ** y, -x, pt.maximum(x, y), pt.sign(x)],
    "integers": [b + b, b * 2, b // 3, b % 3, b / 2, b**2, -b, abs(b), b & 5, b | 2, b ^ 1, ~b, pt.exp(b), b + x],
    "comparisons": [x > y, x <= y, pt.eq(b, 0), pt.neq(b, 0), pt.isnan(x), pt.isinf(x), pt.switch(x > 0, x, y)],
    "bools": [(x > 0) & (y > 0), (x > 0) | (y > 0), ~(x > 0), (x > 0).sum(), (x > 0).all(), (x > 0).any(axis=1)],
    "functions": [
        f(x * 0.5)
        for f in (
            pt.exp, pt.expm1, pt.sin, pt.cos, pt.tan, pt.sinh, pt.cosh, pt.tanh, pt.arctan, pt.arcsinh, pt.sigmoid,
            pt.softplus, pt.erf, pt.erfc, pt.floor, pt.ceil, pt.trunc, pt.round, pt.sqr, pt.reciprocal,
        )
    ],
    "positive functions": [
        f(pt.exp(x))
        for f in (pt.log, pt.log1p, pt.log2, pt.log10, pt.sqrt, pt.gammaln, pt.gamma, pt.psi, pt.tri_gamma)
    ] + [pt.gammainc(pt.exp(x), pt.exp(y)), pt.gammaincc(pt.exp(x), pt.exp(y)), pt.arctan2(x, y)]
    + [pt.betainc(pt.exp(x), pt.exp(y), pt.sigmoid(x)), pt.i0(x), pt.i1(x), pt.iv(1.5, pt.exp(x)), pt.ive(2.0, abs(y))]
    + [pt.erfcx(x), pt.erfcinv(pt.sigmoid(x)), pt.erfinv(pt.tanh(x)), pt.log1mexp(-pt.exp(x)), XLOGY(abs(x), y**2)],
    "casts": [x.astype("float32"), x.astype("int16"), b.astype("float32") * 1.5, x.astype("bool"), x > b],
    "reductions": [
        x.sum(), x.sum(axis=0), x.prod(axis=1), x.max(axis=1), x.min(), b.sum(axis=0), b.max(), b.prod(axis=1),
        x.mean(axis=0), x.var(axis=1), pt.argmax(x, axis=1), pt.argmin(x), x.sum(axis=(0, 1)), pt.logsumexp(x, axis=1),
        x.astype("float32").sum(),
    ],
    "cumulative": [pt.cumsum(x, axis=1), pt.cumprod(v), pt.cumsum(x), pt.diff(v)],
    "softmax": [pt.special.softmax(x, axis=1), pt.special.log_softmax(x, axis=0), pt.special.softmax(x)],
    "shapes": [
        x.T, x.dimshuffle(1, "x", 0), x.reshape((2, -1)), x.flatten(), x.shape, x.shape[0] + 1, pt.zeros_like(x),
        pt.full((2, x.shape[1]), 7.0), pt.arange(x.shape[1]), pt.arange(0.0, 1.0, 0.25), pt.eye(3, 4, 1),
        x[:, :, None] + pt.ones((1, 1, 2)), pt.tile(v, 2), pt.repeat(x, 2, axis=1), pt.atleast_3d(v), pt.tri(3),
        pt.broadcast_to(v, (2, 5)), pt.expand_dims(v, 0), pt.stack([v, w]), pt.stack([v[0], w[1], 3.0]),
    ],
    "joins": [pt.concatenate([x, y], axis=1), pt.join(0, v, w), *pt.split(v, [2, 3], n_splits=2), pt.roll(v, 2)],
    "reads": [
        x[1], x[1:, ::2], x[-1, -2], x[::-1], x[[0, 2]], x[[0, 2], 1:], x[[0, 2], [1, 3]], v[k], x[:, k % 4], x[k[0]],
        v[pt.as_tensor(np.array([True, False, True, False, False]))], pt.take(x, [0, 0], axis=0), x[None, 1],
    ],
    "writes": [
        pt.set_subtensor(x[1], 0.0), pt.inc_subtensor(x[:, 1:3], y[:, :2]), pt.set_subtensor(v[k], 1.0),
        pt.inc_subtensor(v[k], w[:4]), pt.inc_subtensor(x[[0, 0], [1, 1]], 1.0), pt.set_subtensor(x[x > 0], 0.0),
        pt.set_subtensor(v[[1, 2]], w[:2]), pt.inc_subtensor(x[k[0]], 1.0), pt.fill_diagonal(x, 2.0),
    ],
    "products": [
        pt.dot(x, y.T), pt.dot(x, v[:4]), pt.dot(v, w), pt.outer(v, w), pt.matmul(x[None], y.T[None]),
        pt.tensordot(x, y, axes=[[1], [1]]), pt.einsum("ij,kj->ik", x, y), pt.linalg.kron(x[:2], y[:, :2]),
    ],
    "blas": [
        blas.gemv_no_inplace(v[:3], v[0], x, w[:4], w[1]), blas.gemm_no_inplace(pt.eye(3), v[0], x, y.T, w[0]),
        blas.Ger(destructive=False)(x, v[0], v[:3], w[:4]), blas._dot22(x, y.T), blas._dot22scalar(x, y.T, v[0]),
        blas.BatchedDot()(x[None], y.T[None]),
    ],
    "matrices": [
        pt.linalg.cholesky(SPD), pt.linalg.inv(SPD), pt.linalg.det(SPD), *pt.linalg.slogdet(SPD), pt.linalg.inv(-SPD),
        pt.linalg.solve(SPD, v[:3]), pt.linalg.solve(SPD, x, assume_a="pos"), pt.linalg.cho_solve((SPD, True), v[:3]),
        pt.linalg.solve_triangular(SPD, x, lower=True), pt.diag(v), pt.diagonal(x), pt.tril(x), pt.trace(x),
        pt.linalg.eigh(SPD)[0], pt.linalg.svd(x, compute_uv=False), pt.linalg.pinv(x), abs(pt.linalg.qr(x)[1]),
        pt.linalg.block_diag(x, y), pt.linalg.cholesky(pt.stack([SPD, 2 * SPD])),
        pt.linalg.solve(pt.stack([SPD, 2 * SPD]), x),
    ],
    "orders": [pt.sort(x, axis=1), pt.argsort(v), pt.sort(x, axis=None), pt.searchsorted(pt.sort(v), w)],
    "indices": [*pt.unravel_index(abs(k), (2, 3)), pt.ravel_multi_index([abs(k) % 2, abs(k)], (2, 3))],
    "choices": [ifelse(n > 1, x, y), ifelse(n > 5, v, w), Assert("bad")(x, (x < 100).all()), pt.clip(x, -0.5, 0.5)],
    "padding": [pt.pad(x, 1), pt.pad(v, (1, 2), mode="edge"), pt.pad(v, 2, mode="reflect")],
}  # fmt: skip
INPUTS, VALUES = [x, y, v, w, n, k, b], [X, Y, V, W, 2, K, B]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_ops(name: str) -> None:
    agree(INPUTS, GRAPHS[name], VALUES)


def test_every_graph_above_is_one_program() -> None:
    function = pytensor.function([x, y], [*GRAPHS["products"][:1], x.sum()], mode="STATICGRAD")
    function(X, Y)
    assert [type(part).__name__ for part in function.vm.jit_fn.parts] == ["CompiledPart"]
    assert str(function.vm.jit_fn).startswith("1. compiled: ")


# -- random graphs -----------------------------------------------------------------------------------------------------

UNARY: list[Callable[[Any], Any]] = [
    pt.tanh, pt.sin, pt.sigmoid, pt.softplus, abs, lambda a: pt.exp(-abs(a)), lambda a: pt.log1p(a**2), lambda a: a.T,
    lambda a: a[::-1], lambda a: a[:, 1:], lambda a: a.reshape((-1, a.shape[0])), lambda a: pt.cumsum(a, axis=1),
    lambda a: a.sum(axis=0, keepdims=True), lambda a: a.max(axis=1, keepdims=True), lambda a: pt.sort(a, axis=0),
    lambda a: pt.special.softmax(a, axis=1), lambda a: pt.set_subtensor(a[0], 1.0),
    lambda a: pt.inc_subtensor(a[[0, 0]], a[[-1, 0]]),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    pt.add, pt.sub, pt.mul, pt.maximum, lambda a, c: pt.switch(a > c, a, c * 2), lambda a, c: a / (1 + c**2),
]  # fmt: skip


def random_graph(seed: int) -> tuple[Any, Any]:
    """A scalar and its gradient, as they are declared: what rewrites change in 3.0.7 is also what they break there."""
    draw = np.random.default_rng(seed)
    known = [x, y]
    for _ in range(int(draw.integers(4, 10))):
        first = known[draw.integers(len(known))]
        if draw.random() < 0.6:
            known.append(UNARY[draw.integers(len(UNARY))](first))
        else:
            second = known[draw.integers(len(known))]
            scale = pt.specify_broadcastable(second.sum(axis=0, keepdims=True)[:, :1], 0, 1)
            known.append(BINARY[draw.integers(len(BINARY))](first, second if second is first else scale))
    total = sum((pt.tanh(a).sum() for a in known[2:]), start=pt.as_tensor(0.0))
    return total, pt.grad(total, [x, y], disconnected_inputs="ignore")


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.slow) for s in range(6, 120))])
def test_random_graphs(seed: int) -> None:
    total, slopes = random_graph(seed)
    agree([x, y], [total, *slopes], [X, Y], mode=UNREWRITTEN, rtol=1e-8)


# -- loops -------------------------------------------------------------------------------------------------------------


def test_scans_and_their_gradients() -> None:
    last = scan(lambda a, s, c: pt.tanh(s * c + a), sequences=[v], outputs_info=[pt.zeros(())], non_sequences=[w[0]])
    lags = scan(
        lambda a, s1, s2: [s1 * 0.5 - s2 * 0.25 + a, s1 * s2],
        sequences=[v],
        outputs_info=[{"initial": w[:2], "taps": [-1, -2]}, None],
    )
    cost = last[-1] + lags[0][-1] + lags[1].sum()
    agree(INPUTS, [last, *lags, *pt.grad(cost, [v, w])], VALUES, rtol=1e-8)


@pytest.mark.slow
def test_more_scans_and_their_gradients() -> None:
    matrix = scan(lambda row, s: pt.dot(s, pt.outer(row, row)) + 1, sequences=[x], outputs_info=[pt.eye(4)])
    backwards = scan(lambda a, s: s + a**2, sequences=[v], outputs_info=[pt.zeros(())], go_backwards=True)
    power = scan(lambda s, c: s * c, outputs_info=[pt.ones_like(w)], non_sequences=[w], n_steps=n)
    cost = matrix.sum() + backwards[-1] + power[-1].sum()
    agree(INPUTS, [matrix[-1], backwards, power, power[-1], *pt.grad(cost, [x, v, w])], VALUES, rtol=1e-8)


@pytest.mark.slow
def test_the_hessian_of_a_scan() -> None:
    last = scan(lambda a, s: pt.sin(s * a), sequences=[v], outputs_info=[w[0]])[-1]
    hessian = pytensor.gradient.hessian(last * w[0], [v])
    agree([v, w], hessian if isinstance(hessian, list) else [hessian], [V, W], rtol=1e-8)


def test_a_scan_that_ends_early() -> None:
    """The last value has one size, whenever it ends; all values do not, and PyTensor performs that scan."""
    values = scan(lambda s: (s * 2, until(s > v[0])), outputs_info=[pt.ones(())], n_steps=50)
    for bound in (10.0, 1000.0, 0.0):
        function = agree([v], [values[-1]], [np.array([bound])])
        assert not function.vm.jit_fn.refused
    function = agree([v], [values], [np.array([10.0])], mode="STATICGRAD")
    assert [type(node.op).__name__ for node in function.vm.jit_fn.refused] == ["Scan"]


def test_no_step() -> None:
    sums = scan(lambda row, s: s + row, sequences=[x], outputs_info=[pt.zeros(4)])
    assert pytensor.function([x], sums, mode=STRICT)(np.zeros((0, 4))).shape == (0, 4)


# -- state and random numbers ------------------------------------------------------------------------------------------


def test_updates_of_shared_variables() -> None:
    first, second = pytensor.shared(np.arange(3.0)), pytensor.shared(np.ones(3))
    step = pytensor.function([v], first.sum(), updates={first: second, second: first + v[:3]}, mode=STRICT)
    assert step(V) == 3.0
    np.testing.assert_allclose(first.get_value(), np.ones(3))
    np.testing.assert_allclose(second.get_value(), np.arange(3.0) + V[:3])
    assert step(V) == 3.0
    first.get_value(borrow=True)[:] = 100.0
    np.testing.assert_allclose(second.get_value(), 1 + V[:3])  # no memory is shared


def test_random_numbers_stay_pytensor_s_and_are_drawn_once() -> None:
    functions = []
    for mode in ("STATICGRAD", PY):
        generator = pytensor.shared(np.random.default_rng(1))
        after, numbers = drawn(generator, v.sum(), 3)
        total = pytensor.shared(0.0)
        chosen = v[v > 0]  # refused in the first call, when the number is drawn already
        outputs = [pt.exp(numbers) + v[:3], chosen.sum() + numbers[0]]
        updates = {generator: after, total: total + numbers.sum()}
        functions.append((pytensor.function([v], outputs, updates=updates, mode=mode), total))
    (ours, our_total), (theirs, their_total) = functions
    for turn in range(3):
        for a, c in zip(ours(V + turn), theirs(V + turn), strict=True):
            same(a, c)
    same(our_total.get_value(), their_total.get_value())
    kinds = [type(part).__name__ for part in ours.vm.jit_fn.parts]
    assert kinds == ["CompiledPart", "PerformedPart", "PerformedPart", "CompiledPart"]
    assert "performed by PyTensor" in str(ours.vm.jit_fn)


# -- sizes that values say ---------------------------------------------------------------------------------------------


def test_a_size_that_is_an_operand() -> None:
    function = pytensor.function([n, v], [pt.arange(n) * 2.0, v[:n], v[n:].sum()], mode="STATICGRAD")
    for size in (0, 3, 5, 3):
        doubled, start, rest = function(size, V)
        assert doubled.tolist() == [2.0 * i for i in range(size)]
        same(start, V[:size])
        same(rest, V[size:].sum())
    assert not function.vm.jit_fn.refused


def test_many_values_are_not_compiled_for() -> None:
    function = pytensor.function([n, v], pt.arange(n) + v.sum(), mode="STATICGRAD")
    for size in range(20):
        same(function(size, V), np.arange(size) + V.sum())
    program = function.vm.jit_fn
    assert [type(node.op).__name__ for node in program.refused] == ["ARange"]
    assert "more than 16 values" in str(program)


def test_new_shapes_are_compiled_for() -> None:
    function = pytensor.function([x], (x * x.shape[0]).sum(axis=0), mode=STRICT)
    for shape in ((1, 2), (3, 4), (0, 2), (1, 2)):
        same(function(np.ones(shape)), np.full(shape[1], float(shape[0] ** 2)))


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_refusal_names_the_op_and_the_reason() -> None:
    _, numbers = drawn(pytensor.shared(np.random.default_rng(1)), 0.0, 3)
    with pytest.raises(sp.RefusedError, match=r"NormalRV .*this op is not converted"):
        sp.convert([], [numbers])
    with pytest.raises(sp.RefusedError, match=r"NormalRV .*this op is not converted"):
        pytensor.function([], numbers, mode=STRICT)
    with pytest.raises(
        sp.RefusedError, match=r"ARange .*length of the result depends on values that only a run knows"
    ) as e:
        sp.convert([n], [pt.arange(n)], [()])
    assert e.value.needs is not None
    with pytest.raises(sp.RefusedError, match=r"its shape \(None, None\) is not known"):
        sp.convert([x], [x + 1])
    with pytest.raises(sp.RefusedError, match="complex128"):
        sp.convert([x], [x + 1j], [(2, 2)])
    inner = scan(lambda a: pt.arange(a).sum(), sequences=[k])
    with pytest.raises(sp.RefusedError, match=r"^Scan .*ARange: the length"):
        sp.convert([k], [inner], [(4,)])


def test_all_ops_that_are_not_converted_are_listed_at_once_with_their_lines() -> None:
    below = scan(lambda a, s: pt.owens_t(s, a), sequences=[v], outputs_info=[pt.ones(())])
    first = pt.j0(v) + pt.j1(v)
    second = pt.j1(v * 2)
    for refuse in (
        lambda: sp.convert([v], [first, second, below], [(3,)]),
        lambda: pytensor.function([v], [first, second, below], mode=STRICT),
    ):
        with pytest.raises(sg.UnsupportedError) as e:
            refuse()
        assert {op.name: op.count for op in e.value.ops} == {"J0": 1, "J1": 2, "Owens_t": 1}
        assert "J1 (2 times): this op is not converted\n" in str(e.value)
        (lines,) = [[source.text for source in op.sources] for op in e.value.ops if op.name == "J1"]
        assert sorted(lines) == ["first = pt.j0(v) + pt.j1(v)", "second = pt.j1(v * 2)"]
    function = pytensor.function([v], [first, below], mode="STATICGRAD")
    assert {type(node.op).__name__ for node in function.vm.jit_fn.refused} == {"Elemwise", "Scan"}  # before any call
    np.testing.assert_allclose(function(V)[0], pytensor.function([v], first, mode=PY)(V))


def test_checks_raise_what_pytensor_raises() -> None:
    checked = CheckAndRaise(KeyError, "no such row")(x, (x > 0).all())
    function = pytensor.function([x], [checked.sum(), Assert("too large")(x, x.max() < 9)], mode=STRICT)
    with pytest.raises(KeyError, match="no such row"):
        function(-np.ones((2, 2)))
    with pytest.raises(AssertionError, match="too large"):
        function(np.full((2, 2), 10.0))
    assert function(np.ones((2, 2)))[0] == 4.0


def test_bad_operands() -> None:
    with pytest.raises(IndexError):
        pytensor.function([v, k], v[k], mode=STRICT)(V, np.array([7]))
    with pytest.raises(ValueError, match="Runtime broadcasting not allowed"):
        pytensor.function([v, w], v + w, mode=STRICT)(V, W[:1])
    with pytest.raises(ValueError, match="summed sizes"):
        pytensor.function([x, y], pt.dot(x, y), mode=STRICT)(X, Y)
    with pytest.raises(ValueError, match="into shape"):
        pytensor.function([x], x.reshape((5, 7)), mode=STRICT)(X)


def test_converted_graphs_are_derived_here_too() -> None:
    found = sp.convert([x, v], [(pt.tanh(pt.dot(x, v[:4])) ** 2).sum()], [(3, 4), (5,)])
    by_x, by_v = sg.gradients(found.results, [p for p in found.placeholders if p is not None])
    ours = sg.Session(found.graph).run([by_x, by_v], dict(zip(found.placeholders, [X, V], strict=True)))
    cost = (pt.tanh(pt.dot(x, v[:4])) ** 2).sum()
    for a, c in zip(ours, pytensor.function([x, v], pt.grad(cost, [x, v]), mode=PY)(X, V), strict=True):
        same(a, c)


def test_the_mode_has_options() -> None:
    mode = sp.mode(num_threads=1)
    function = pytensor.function([x], x.sum(), mode=mode)
    other = pytensor.function([x], x.prod(), mode=mode)
    assert function(X) == pytest.approx(X.sum())
    assert other(X) == pytest.approx(X.prod())
    assert other.vm.jit_fn.num_threads == 1
    (value,) = other.vm.jit_fn(X)
    assert value == pytest.approx(X.prod())
    sp.register()  # again, which changes nothing


def test_without_pytensor() -> None:
    code = "import sys; sys.modules['pytensor'] = None; import staticgrad.pytensor"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install '.[pytensor]'" in found.stderr
