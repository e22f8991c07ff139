"""Every op, from its entry: compiled against its NumPy reference, derivatives against differences and each other.

All cases of an op and dtype share one program. A test at the end proves that no op escapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np
import pytest
from support.op_cases import (
    DIFFERENTIABLE,
    TESTED,
    TOLERANCE,
    check_derivatives,
    declare,
    edge_ops,
    typed,
    varied,
)
from support.sampling import EDGES, Array, operand_dtypes, operands, relative_error
from support.selection import rotating
from support.targets import CURRENT, EVERY

import staticgrad as sg
from staticgrad.base.types import float64
from staticgrad.compiler.kernels.routines import LONE
from staticgrad.graph.graph import Graph, Tensor
from staticgrad.graph.optable import FUNCTIONS, OPS, Case, Op, Role, register
from staticgrad.ops.batch_rules import leading
from staticgrad.ops.collectives import COLLECTIVES
from staticgrad.ops.control.loops import EFFECTFUL_SCAN, EFFECTFUL_WHILE, SCAN, WHILE
from staticgrad.ops.control.rewinding import EFFECTFUL_SNAPSHOT_LOOP, REWOUND, SNAPSHOT_LOOP

ELSEWHERE = {
    "placeholder": "test_session", "variable": "test_state", "constant": "everywhere", "group": "test_session",
    "accumulated_grad": "test_state", "assign": "test_state", "print": "test_session", "py_call": "test_session",
    **dict.fromkeys(("custom_gradient", "custom_tangent", "custom_derivatives", "once"), "test_custom_gradient"),
    "assertion": "test_session", "bounds_check": "test_session", "numerics_check": "test_session",
    "accumulate_grad": "test_retention", "assign_rows": "test_row_updates", "surrogate": "test_odes",
    **dict.fromkeys([op.name for op in COLLECTIVES], "test_distributed"),
    **dict.fromkeys(sorted(op.name for op in OPS.values() if op.role == "control"), "test_control"),
}  # fmt: skip


def both(graph: Graph, fetches: Any, feeds: dict[Tensor, Array], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The same fetches, compiled and by the interpreter."""
    monkeypatch.setenv("STATICGRAD_BACKEND", "compiled")
    compiled = sg.Session(graph).run(fetches, feeds)
    monkeypatch.setenv("STATICGRAD_BACKEND", "reference")
    with np.errstate(all="ignore"):
        reference = sg.Session(graph).run(fetches, feeds)
    return compiled, reference


def named(value: Op | str) -> str:
    return value if isinstance(value, str) else value.name


def on_some_target(ops: Sequence[Op]) -> list[Any]:
    """Each op with each target, of which nearly every op is tried on one: another one in the next commit."""
    return rotating(itertools.product(ops, EVERY), len(EVERY) + 1)


@pytest.mark.parametrize(("op", "target"), on_some_target(TESTED), ids=named)
def test_compiled_equals_reference_on_every_dtype(op: Op, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    graph = Graph()
    feeds: dict[Tensor, Array] = {}
    fetches: dict[str, tuple[Tensor, ...]] = {}
    for dtype, (number, case) in itertools.product(typed(op), enumerate(op.cases)):
        xs, ys = declare(graph, op, case, dtype)
        feeds.update(zip(xs, operands(op, case, dtype), strict=True))
        fetches[f"{dtype.name}/{number}"] = ys
    compiled, reference = both(graph, fetches, feeds, monkeypatch)
    for name in fetches:
        for got, want in zip(compiled[name], reference[name], strict=True):
            tolerance = TOLERANCE.get(want.dtype.name, 0.0) * op.tolerance
            assert relative_error(got, want) <= tolerance, f"{op.name} {name}: {got} expected {want}"


def test_a_kernel_that_computes_something_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(OPS["tanh"], scalar=lambda b, attrs, x: b.sigmoid(x))
    monkeypatch.setitem(OPS, "tanh", wrong)
    monkeypatch.setenv("STATICGRAD_CACHE", "0")  # where the right program is kept
    with pytest.raises(AssertionError, match="tanh"):
        test_compiled_equals_reference_on_every_dtype(wrong, CURRENT, monkeypatch)


@pytest.mark.parametrize(("op", "target"), on_some_target(edge_ops()), ids=named)
def test_edge_values_empty_and_strided(op: Op, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    graph = Graph()
    feeds: dict[Tensor, Array] = {}
    fetches: dict[str, Tensor] = {}
    arity = len(op.cases[0].shapes)
    for dtype in typed(op):
        dtypes = operand_dtypes(op.cases[0], dtype)
        values = [EDGES[d.name] for d in dtypes]
        table = list(itertools.product(*values))
        columns = [np.array([row[i] for row in table], d) for i, d in enumerate(dtypes)]
        wide = [np.stack([c, c], 1)[:, 0] for c in columns]  # not contiguous
        for name, arrays in (("edges", wide), ("empty", [c[:0] for c in columns]), ("one", [c[:1] for c in columns])):
            with graph:
                xs = [sg.placeholder(a.shape, a.dtype) for a in arrays]
                (y,) = graph.add(op, xs, op.cases[0].attrs).outputs
            feeds.update(zip(xs, arrays, strict=True))
            fetches[f"{dtype.name}/{name}"] = y
    assert arity
    compiled, reference = both(graph, fetches, feeds, monkeypatch)
    for name in fetches:
        got, want = compiled[name], reference[name]
        assert got.dtype == want.dtype
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=f"{op.name} {name}")
            continue
        tolerance = {"float32": 4e-6, "float64": 1e-13}[got.dtype.name] * op.tolerance
        tiny = np.finfo(got.dtype).tiny
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tiny, err_msg=f"{op.name} {name}")


@pytest.mark.share(2)
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_derivatives_agree_with_finite_differences_and_each_other(op: Op) -> None:
    check_derivatives(op)


# -- empty axes --------------------------------------------------------------------------------------------------------

# Ops whose rules trust the functions that declare them: pools refuse windows that do not fit, norms ask for
# elements, a scatter broadcasts its updates.
TRUSTING = {"window", "spectral_norm_slope", "extreme_with_place"}


def emptied(op: Op) -> list[Case]:
    """The cases of an op with all axes of one size emptied; of elementwise ones also without axes."""
    found: dict[Any, Case] = {}
    for case in op.cases:
        shapes = {tuple(tuple(0 if s == size else s for s in shape) for shape in case.shapes)
                  for size in {s for shape in case.shapes for s in shape}}  # fmt: skip
        shapes |= {((),) * len(case.shapes)} if op.elementwise else set()
        for own in sorted(shapes):
            indices = [i for i, d in enumerate(case.dtypes or ()) if d is not None and d.kind == "i"]
            if any(math.prod(own[i]) for i in indices) and not math.prod(own[0]):
                continue  # indices of no elements
            found[repr((own, case.attrs))] = replace(case, shapes=own, prepared=None)
    return list(found.values())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of means and variances of nothing
@pytest.mark.parametrize(("op", "target"), on_some_target([op for op in TESTED if op.name not in TRUSTING]), ids=named)
def test_empty_axes_are_refused_when_declared_or_computed(op: Op, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATICGRAD_TARGET", target)
    graph = Graph()
    feeds: dict[Tensor, Array] = {}
    fetches: dict[str, list[Tensor]] = {}
    dtype = float64 if float64 in typed(op) else typed(op)[0]
    for case in emptied(op):
        try:
            xs, ys = declare(graph, op, case, dtype)
        except sg.GraphError:
            continue
        feeds.update(zip(xs, operands(op, case, dtype), strict=True))
        slopes: list[Tensor] = []
        moving, floating = [xs[i] for i in varied(case)], [y for y in ys if y.dtype == float64]
        if moving and floating and dtype == float64 and op.differentiable and op.name != "slice":
            with graph:
                weights = [sg.ones(y.shape, dtype=float64) for y in floating]
                slopes = sg.gradients(floating, moving, weights, unconnected_gradients="zero")
        fetches[f"{case.shapes} {case.attrs}"] = [*ys, *slopes]
    if fetches:
        compiled, reference = both(graph, fetches, feeds, monkeypatch)
        for name in fetches:
            for got, want in zip(compiled[name], reference[name], strict=True):
                error = relative_error(got, want, floor=1e-4)
                assert error <= 1e-10 * op.tolerance, f"{op.name} {name}: {got} expected {want}"


# -- NumPy's integers --------------------------------------------------------------------------------------------------


def with_numpy_integers(value: Any) -> Any:
    """Attributes with NumPy's integers in the place of Python's."""
    if type(value) is int:
        return np.int64(value)
    if type(value) is tuple:
        return tuple(map(with_numpy_integers, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: with_numpy_integers(getattr(value, f.name)) for f in fields(value)})
    return value


def holds_numpy_integers(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(holds_numpy_integers, value))
    if is_dataclass(value):
        return any(holds_numpy_integers(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, np.integer)


def test_attributes_and_sizes_given_as_numpy_integers_become_python_s() -> None:
    seen = 0
    for op in TESTED:
        for case in op.cases:
            given = replace(case, attrs=with_numpy_integers(case.attrs))
            graph = Graph()
            dtype = float64 if float64 in typed(op) else typed(op)[0]
            _, ys = declare(graph, op, given, dtype)
            assert ys[0].op.attrs == case.attrs
            assert not holds_numpy_integers(ys[0].op.attrs), op.name
            assert not any(holds_numpy_integers(y.shape) for y in ys), op.name
            seen += holds_numpy_integers(given.attrs)
    assert seen > 100


def test_a_pool_whose_sizes_are_numpy_integers_is_compiled() -> None:
    """The compiler asked NumPy's integers for their ``bit_length``, which they do not have."""
    o, graph = FUNCTIONS, Graph()
    with graph:
        x = sg.placeholder((1, 1, 5, 7))
        op = OPS["max_pool2d"]
        y = graph.add(op, [x], with_numpy_integers(op.cases[0].attrs)).outputs[0]
        z = o.pad_with(y, (np.int64(0),) * 4, (np.int64(1),) * 4, (np.int64(1),) * 4)
        slope = sg.gradients(sg.sum(z * z), x)
    given = np.arange(35, dtype=np.float32).reshape(1, 1, 5, 7)
    found = sg.Session(graph).run([z, slope], {x: given})
    assert found[0].shape == z.shape
    assert found[1][0].sum() == 2 * found[0].sum()


def test_every_op_says_what_the_compiler_may_do_with_it() -> None:
    by_role = {role: {op.name for op in OPS.values() if op.role == role} for role in get_args(Role)}
    assert all(by_role.values()), f"a role that no op has: {by_role}"
    for op in OPS.values():
        assert op.role in by_role
        assert (op.scalar is not None) == op.elementwise, op.name
        assert (op.expand is not None) == (op.role == "composed"), op.name
        assert op.effect or op.role not in ("store", "effect"), op.name
        assert op.effect or not op.ordered, op.name
        assert op.role == "source" or not op.fill, op.name
        assert op.role == "write" or op.filled is None, op.name
        kept = op.state or op.draws or op.effect or any(case.shapes for case in op.cases)
        assert not (op.rematerializable and kept), op.name
    assert {op.name for op in OPS.values() if op.state} == by_role["store"] | {"variable", "accumulated_grad"}
    assert set(LONE) == by_role["routine"]
    assert by_role["write"] - {"concat", "bucket"} == {op.name for op in OPS.values() if op.filled is not None}


@pytest.mark.parametrize(
    "entry",
    [
        {"role": "elementwise", "vjp": print},
        {"role": "composed", "vjp": print},
        {"role": "routine", "scalar": print, "vjp": print},
        {"role": "view", "expand": print},
        {"role": "routine"},
    ],
)
def test_an_entry_that_does_not_say_how_it_is_computed_or_derived_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"say how it is computed|give a derivative"):
        register(Op("unfinished", "", print, print, **entry))
    assert "unfinished" not in set(OPS)


def test_every_primitive_says_how_it_goes_over_many_examples() -> None:
    """Or why it does not. Loops go through their bodies; what has no operands is the same for all."""
    silent = {op.name for op in OPS.values() if op.batch is None and op.role not in ("composed", "source")}
    of_the_compiler = {op.name for op in (SNAPSHOT_LOOP, EFFECTFUL_SNAPSHOT_LOOP, REWOUND)}  # which nothing batches
    assert silent == {op.name for op in (SCAN, EFFECTFUL_SCAN, WHILE, EFFECTFUL_WHILE)} | of_the_compiler
    assert {op.name for op in OPS.values() if isinstance(op.batch, str)} == {"assign", "assign_rows", "variable"}
    for op in OPS.values():
        room = [hasattr(case.attrs, "leading") for case in op.cases]
        assert (op.batch is leading) == (any(room) and all(room)), op.name


def test_no_op_escapes() -> None:
    untested = sorted(set(OPS) - {op.name for op in TESTED} - set(ELSEWHERE))
    assert not untested, f"ops without cases: {untested}"
    silent = [op.name for op in TESTED if op.differentiable and op not in DIFFERENTIABLE and float64 in typed(op)]
    allowed = {"full", "random_uniform", "householder"}  # the last one's derivative is qr's
    allowed |= {"matrix_function", "matrix_function_curvature"}  # of which random differences make no function
    assert set(silent) <= allowed, f"differentiable ops whose derivative no case tests: {sorted(set(silent) - allowed)}"
