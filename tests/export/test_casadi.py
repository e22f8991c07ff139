"""Exported programs as CasADi's external functions: values, Jacobians, and what CasADi does with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT

import staticgrad as sg
from staticgrad.graph.graph import Graph

ca: Any = pytest.importorskip("casadi")

sys.path.append(str(ROOT / "benchmarks"))
from sparse_problems import CASADI, PROBLEMS, Problem  # noqa: E402

QUIET = {"ipopt.print_level": 0, "ipopt.sb": "yes", "print_time": 0, "show_eval_warnings": False}


def loaded(executable: sg.Executable, path: Path) -> Any:
    """The external function of an executable, under the name of its file."""
    executable.export(path, "shared", signature="casadi")
    return ca.external(path.stem, str(path))


def rosenbrock() -> sg.Executable:
    with Graph() as graph:
        x = sg.placeholder((2,), sg.float64, name="x")
        y = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return sg.Session(graph).compile(y, x)


def test_a_value_and_its_jacobian(tmp_path: Path) -> None:
    executable = rosenbrock()
    f = loaded(executable, tmp_path / "rosenbrock.so")
    assert (f.name_in(), f.size_in(0), f.size_out(0)) == (["x"], (2, 1), (1, 1))
    assert float(f([0.5, 2.0])) == executable(np.array([0.5, 2.0])) == 306.5
    np.testing.assert_array_equal(f.jacobian()([0.5, 2.0], 0), [[-351, 350]])
    assert not (tmp_path / "rosenbrock.h").exists()


def test_results_are_called_by_the_keys_of_a_dict(tmp_path: Path) -> None:
    with Graph() as graph:
        x, u = sg.placeholder((2,), sg.float64, name="x"), sg.placeholder((), sg.float64, name="u")
        fetches = {"cost": sg.sum(x**2) + u, "limits": {"low": x - u, "high": [x + u, sg.exp(u)]}}
    f = loaded(sg.Session(graph).compile(fetches, [x, u]), tmp_path / "keyed.so")
    assert f.name_out() == ["cost", "limits_low", "limits_high_0", "limits_high_1"]
    found = f.call({"x": [1.0, 2.0], "u": 0.5})
    assert float(found["cost"]) == 5.5
    np.testing.assert_array_equal(found["limits_low"], [[0.5], [1.5]])
    assert f.factory("slope", ["x", "u"], ["jac:cost:x"])(x=[1.0, 2.0], u=0.5)["jac_cost_x"].shape == (1, 2)


def test_ipopt_finds_the_minimum(tmp_path: Path) -> None:
    """The Rosenbrock problem of CasADi's examples, with our function and its gradient in the place of expressions."""
    f = loaded(rosenbrock(), tmp_path / "rosenbrock.so")
    x, z = ca.MX.sym("x", 2), ca.MX.sym("z")
    problem = {"x": ca.vertcat(x, z), "f": f(x) + 100 * z**2, "g": z + (1 - x[0]) ** 2 - x[1]}
    found = ca.nlpsol("solver", "ipopt", problem, QUIET)(x0=[2.5, 3.0, 0.75], lbg=0, ubg=0)
    own = {**problem, "f": (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2 + 100 * z**2}
    solver = ca.nlpsol("solver", "ipopt", own, QUIET)
    np.testing.assert_allclose(found["x"], solver(x0=[2.5, 3.0, 0.75], lbg=0, ubg=0)["x"], rtol=1e-9, atol=1e-9)


def functions(problem: Problem, namespace: Any, x: Any) -> dict[str, Any]:
    fs = {"f": problem.objective, "g": problem.constraints}
    return {name: f(namespace, x) for name, f in fs.items() if f is not None}


def both(problem: Problem, path: Path) -> tuple[Any, Any]:
    """A problem's functions as ours, and as CasADi's own expressions."""
    with Graph() as graph:
        x = sg.placeholder((problem.size,), sg.float64, name="x")
        ys = functions(problem, sg, x)
    ours = loaded(sg.Session(graph).compile(ys, [x]), path)
    symbol = ca.SX.sym("x", problem.size)
    own = functions(problem, CASADI, symbol)
    return ours, ca.Function(path.stem, [symbol], list(own.values()), ["x"], list(own))


def pairs(sparsity: Any) -> set[tuple[int, int]]:
    return set(zip(*sparsity.get_triplet(), strict=True))


@pytest.mark.parametrize("name", ["chained_rosenbrock", "lukvle1", "lukvle6", "sparsine", "hanging_chain", "robot_arm"])
def test_derivatives_are_sparse_as_casadi_s_own(name: str, tmp_path: Path) -> None:
    """Jacobians and the Hessian of a sum of results, with places that cover those that CasADi finds."""
    problem = PROBLEMS[name](40)
    ours, own = both(problem, tmp_path / f"{name}.so")
    x = problem.start + 1e-2 * np.random.default_rng(0).normal(size=problem.size)
    values = own.call([x])
    seeds = [np.cos(np.arange(y.numel())) for y in values]
    for f, theirs, given in (
        (ours.jacobian(), own.jacobian(), [x, *values]),
        (ours.reverse(1), own.reverse(1), [x, *values, *seeds]),
        (ours.reverse(1).jacobian(), own.reverse(1).jacobian(), [x, *values, *seeds, 0]),
    ):
        for number, (got, want) in enumerate(zip(f.call(given), theirs.call(given), strict=True)):
            exact = np.array(want)
            np.testing.assert_allclose(np.array(got), exact, rtol=0, atol=1e-11 * max(1, np.abs(exact).max(initial=0)))
            assert pairs(f.sparsity_out(number)) <= pairs(theirs.sparsity_out(number)), f.name_out(number)


@pytest.mark.parametrize(
    ("name", "size"), [("lukvle1", 100), ("lukvle6", 60), ("catalyst_mixing", 60), ("hanging_chain", 40)]
)
def test_ipopt_takes_as_many_iterations_as_with_casadi_s_expressions(name: str, size: int, tmp_path: Path) -> None:
    problem = PROBLEMS[name](size)
    bounds = {"x0": problem.start, "lbx": -4, "ubx": 4, "lbg": 0, "ubg": 0}
    results = []
    for f, kind in zip(both(problem, tmp_path / f"{name}.so"), (ca.MX, ca.SX), strict=True):
        x = kind.sym("x", problem.size)
        cost, limits = f(x)
        solver = ca.nlpsol("solver", "ipopt", {"x": x, "f": cost, "g": limits}, QUIET)
        found = solver(**bounds)
        assert solver.stats()["success"]
        lagrangian = solver.get_function("nlp_hess_l").sparsity_out(0)
        results.append((float(found["f"]), solver.stats()["iter_count"], np.array(found["x"]), pairs(lagrangian)))
    (value, count, at, places), (wanted, own_count, own_at, own_places) = results
    assert abs(count - own_count) <= 1
    assert places <= own_places
    np.testing.assert_allclose(value, wanted, rtol=1e-8)
    np.testing.assert_allclose(at, own_at, rtol=1e-5, atol=1e-5)


def test_second_derivatives_by_several_matrices(tmp_path: Path) -> None:
    """Elements of matrices are numbered by columns there and by rows here, in every block."""
    with Graph() as graph:
        a, b = sg.placeholder((2, 3), sg.float64, name="a"), sg.placeholder((3,), sg.float64, name="b")
        executable = sg.Session(graph).compile({"c": sg.sin(a[:, 1:]) * a[:, :1] * b[0], "d": a @ b**2}, [a, b])
    f = loaded(executable, tmp_path / "blocks.so")
    x, y = ca.SX.sym("a", 2, 3), ca.SX.sym("b", 3)
    own = ca.Function("own", [x, y], [ca.sin(x[:, 1:]) * ca.repmat(x[:, 0], 1, 2) * y[0], ca.mtimes(x, y**2)])
    rng = np.random.default_rng(1)
    given = [rng.normal(size=shape) for shape in ((2, 3), 3, (2, 2), 2, (2, 2), 2, (2, 3), 3)]
    got, want = f.reverse(1).jacobian(), own.reverse(1).jacobian()
    for number, (mine, exact) in enumerate(zip(got.call(given), want.call(given), strict=True)):
        np.testing.assert_allclose(np.array(mine), np.array(exact), rtol=1e-13, atol=1e-14)
        assert pairs(got.sparsity_out(number)) == pairs(want.sparsity_out(number)), got.name_out(number)


def test_what_has_no_derivative_is_a_function_still(tmp_path: Path) -> None:
    @sg.once_differentiable
    def rule(ct: Any) -> Any:
        return 2 * ct

    @sg.custom_gradient
    def doubled(x: Any) -> Any:
        return 2 * x, rule

    with Graph() as graph:
        x = sg.placeholder((2,), sg.float64, name="x")
        executable = sg.Session(graph).compile(doubled(x), x)
    f = loaded(executable, tmp_path / "once.so")
    np.testing.assert_array_equal(f([1.0, 2.0]), [[2.0], [4.0]])
    names = [
        entry.name for entry in executable.export(tmp_path / "again.so", "shared", signature="casadi").interface.entries
    ]
    assert names == ["again", "jac_again", "adj1_again"]
    np.testing.assert_array_equal(f.jacobian()([1.0, 2.0], 0), [[2.0, 0.0], [0.0, 2.0]])


def test_an_integrator_solves_van_der_pols_equation(tmp_path: Path) -> None:
    with Graph() as graph:
        x, u = sg.placeholder((2,), sg.float64, name="x"), sg.placeholder((), sg.float64, name="u")
        du = sg.stack([(1 - x[1] ** 2) * x[0] - x[1] + u, x[0]])
    f = loaded(sg.Session(graph).compile(du, [x, u]), tmp_path / "van_der_pol.so")
    x, u = ca.MX.sym("x", 2), ca.MX.sym("u")
    options = {"abstol": 1e-11, "reltol": 1e-11}
    results = []
    for ode in (f(x, u), ca.vertcat((1 - x[1] ** 2) * x[0] - x[1] + u, x[0])):
        solver = ca.integrator("solver", "cvodes", {"x": x, "p": u, "ode": ode}, 0, 2.0, options)
        results.append(np.array(solver(x0=[0.0, 1.0], p=0.2)["xf"]))
    np.testing.assert_allclose(*results, rtol=1e-8)


def test_matrices_are_columns_there(tmp_path: Path) -> None:
    with Graph() as graph:
        a, b = sg.placeholder((2, 3), sg.float64, name="a"), sg.placeholder((3,), sg.float64, name="b")
        w = sg.Variable(np.arange(6.0).reshape(3, 2), name="w")
        executable = sg.Session(graph).compile({"c": w @ sg.sin(a), "d": (a @ b, sg.sum(a * a))}, [a, b])
    f = loaded(executable, tmp_path / "matrices.so")
    assert f.n_out() == 3
    rng = np.random.default_rng(1)
    given = rng.normal(size=(2, 3)), rng.normal(size=3)
    found, wanted = f(*given), executable(*given)
    for got, want in zip(found, (wanted["c"], *wanted["d"]), strict=True):
        np.testing.assert_allclose(np.array(got).reshape(np.shape(want)), want, rtol=1e-14)
    x, y = ca.SX.sym("a", 2, 3), ca.SX.sym("b", 3)
    own = ca.Function("own", [x, y], [ca.mtimes(ca.DM(np.arange(6.0).reshape(3, 2)), ca.sin(x)), ca.mtimes(x, y),
                                      ca.sum1(ca.sum2(x * x))])  # fmt: skip
    for got, want in zip(f.jacobian()(*given, *found), own.jacobian()(*given, *found), strict=True):
        np.testing.assert_allclose(np.array(got), np.array(want), rtol=1e-13, atol=1e-15)


def test_a_null_pointer_is_zero_and_not_wanted(tmp_path: Path) -> None:
    with Graph() as graph:
        x, y = (sg.placeholder((2,), sg.float64, name=name) for name in "xy")
        executable = sg.Session(graph).compile([sg.exp(x) + y, sg.sum(x * y)], [x, y])
    f = loaded(executable, tmp_path / "partly.so")
    only_first = ca.Function("first", [y := ca.MX.sym("y", 2)], [f(ca.MX(2, 1), y)[0]])
    np.testing.assert_allclose(np.array(only_first([1.0, 2.0])).ravel(), [2.0, 3.0])


def test_what_casadi_cannot_call_is_refused(tmp_path: Path) -> None:
    with Graph() as graph:
        x, wide = sg.placeholder((2,), name="x"), sg.placeholder((2, 2, 2), sg.float64, name="wide")
    session = sg.Session(graph)
    for y, feed in ((x * 2, x), (wide * 2, wide)):
        with pytest.raises(sg.GraphError, match="expected float64 of at most 2 dimensions"):
            session.compile(y, feed).export(tmp_path / "f.so", "shared", signature="casadi")
    with pytest.raises(sg.StaticGradError, match="CasADi loads a format of 'shared' or 'object'"):
        rosenbrock().export(tmp_path / "f.ll", "llvm", signature="casadi")
    with pytest.raises(sg.GraphError, match=r"exe\.export"):
        rosenbrock().cfunc("casadi")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
