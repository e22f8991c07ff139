"""Other libraries' own introductory examples, with compiled programs as their functions: NLopt's, numbalsoda's,
SciPy's. A library that is not installed is skipped."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate
from support.callers import address, doubles

import staticgrad as sg

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def g() -> Iterator[sg.Graph]:
    with sg.Graph() as graph:
        yield graph


# -- NLopt ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nlopt() -> Any:
    """NLopt's C functions, which its Python package brings in its extension module, and the package for its names."""
    module = pytest.importorskip("nlopt")
    library = ctypes.CDLL(str(next(Path(module.__file__).parent.glob("*nlopt*.so"))))
    if not hasattr(library, "nlopt_set_min_objective"):
        pytest.skip("this nlopt does not export NLopt's C functions")
    library.nlopt_create.restype = ctypes.c_void_p
    return module, library


def parts() -> tuple[sg.CFunction, sg.CFunction]:
    """The square root of the second coordinate, and by how much it lies under a cubic of the first, whose two
    coefficients are the user's data."""
    x, user = sg.placeholder((2,), sg.float64), sg.placeholder((2,), sg.float64)
    session = sg.Session()
    height, under = sg.sqrt(x[1]), (user[0] * x[0] + user[1]) ** 3 - x[1]
    return session.compile(height, x).cfunc("nlopt"), session.compile(under, [x, user]).cfunc("nlopt", wrt=x)


@pytest.mark.parametrize("algorithm", ["LD_MMA", "LD_SLSQP", "LD_CCSAQ", "LN_COBYLA"])
def test_nlopts_tutorial(nlopt: Any, algorithm: str) -> None:
    """Minimize √y over two cubics: y ≥ (2x)³ and y ≥ (1 - x)³, from the C interface, where data is a pointer."""
    module, c = nlopt
    objective, constraint = parts()
    opt = ctypes.c_void_p(c.nlopt_create(getattr(module, algorithm), 2))
    try:
        lowest = (ctypes.c_double * 2)(-np.inf, 0.0)
        assert c.nlopt_set_lower_bounds(opt, lowest) > 0
        assert c.nlopt_set_min_objective(opt, ctypes.c_void_p(objective.address), None) > 0
        coefficients = [doubles(2, 0), doubles(-1, 1)]
        for pair in coefficients:
            pointers = [ctypes.c_void_p(where) for where in (constraint.address, address(pair))]
            assert c.nlopt_add_inequality_constraint(opt, *pointers, ctypes.c_double(1e-8)) > 0
        assert c.nlopt_set_xtol_rel(opt, ctypes.c_double(1e-6)) > 0
        x, value = (ctypes.c_double * 2)(1.234, 5.678), ctypes.c_double()
        assert c.nlopt_optimize(opt, x, ctypes.byref(value)) > 0
    finally:
        c.nlopt_destroy(opt)
    np.testing.assert_allclose(x, (1 / 3, 8 / 27), rtol=1e-4)
    np.testing.assert_allclose(value.value, np.sqrt(8 / 27), rtol=1e-5)


# -- numbalsoda -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbalsoda() -> Any:
    pytest.importorskip("numba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("numbalsoda")


def predators() -> tuple[sg.Executable, sg.CFunction]:
    """Two species, one of which eats the other and dies at a rate that is a parameter."""
    t, u, p = (sg.placeholder(shape, sg.float64, name=name) for name, shape in (("t", ()), ("u", (2,)), ("p", (1,))))
    eaten = u[0] * u[1]
    executable = sg.Session().compile(sg.stack([u[0] - eaten, eaten - u[1] * p[0]]), [t, u, p])
    return executable, executable.cfunc("ode")


@pytest.mark.slow  # numba takes seconds to import and to compile
@pytest.mark.parametrize("solver", ["lsoda", "dop853"])
def test_numbalsodas_predators_and_prey(numbalsoda: Any, solver: str) -> None:
    executable, function = predators()
    start, rate, times = doubles(5.0, 0.8), doubles(1.0), np.linspace(0.0, 50.0, 1000)
    found, success = getattr(numbalsoda, solver)(function.address, start, times, rate, rtol=1e-9, atol=1e-9)
    assert success
    wanted = integrate.solve_ivp(
        lambda t, u: executable(np.float64(t), u, rate), (0, 50), start, t_eval=times[::100], rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(found[::100], wanted.y.T, rtol=1e-4)


@pytest.mark.slow
def test_numbalsoda_inside_compiled_loops_on_many_threads(numbalsoda: Any) -> None:
    """Its example of a parallel loop of numba: each turn solves the equation with another rate."""
    import numba

    _, function = predators()
    place, lsoda = function.address, numbalsoda.lsoda

    @numba.njit(parallel=True)  # type: ignore[untyped-decorator]
    def solve(rates: Array, start: Array, times: Array) -> Array:
        ends = np.empty((len(rates), 2))
        for i in numba.prange(len(rates)):
            found, _ = lsoda(place, start, times, rates[i : i + 1], 1e-9, 1e-9)
            ends[i] = found[-1]
        return ends

    rates, start, times = np.linspace(0.5, 2.0, 200), doubles(5.0, 0.8), np.linspace(0.0, 10.0, 20)
    ends = solve(rates, start, times)
    for i in (0, 77, 199):
        alone, _ = lsoda(place, start, times, rates[i : i + 1], 1e-9, 1e-9)
        np.testing.assert_array_equal(ends[i], alone[-1])


# -- SciPy ------------------------------------------------------------------------------------------------------------


def test_scipys_integrals_of_its_tutorial() -> None:
    """∫∫ exp(-xt)/tⁿ = 1/n over t from 1 and x from 0, and a Gaussian over all numbers whose width is user data."""
    x, t = sg.placeholder((), sg.float64), sg.placeholder((), sg.float64)
    n = sg.placeholder((1,), sg.float64)
    point = sg.placeholder((2,), sg.float64)
    inner = sg.Session().compile(sg.exp(-point[0] * point[1]) / point[1] ** n[0], [point, n]).cfunc("scalars")
    for power in (3.0, 4.0):
        call = inner.low_level_callable(doubles(power))
        value, _ = integrate.nquad(call, [[0, np.inf], [1, np.inf]])
        np.testing.assert_allclose(value, 1 / power, rtol=1e-6)
    product = sg.Session().compile(sg.exp(-x * x / n[0]), [x, n]).cfunc("scalar")
    for width in (1.0, 9.0):
        value, _ = integrate.quad(product.low_level_callable(doubles(width)), -np.inf, np.inf)
        np.testing.assert_allclose(value, np.sqrt(np.pi * width))
    sides = sg.Session().compile(x * t, [x, t]).cfunc("scalars").low_level_callable()
    np.testing.assert_allclose(integrate.dblquad(sides, 0, 1, 0, 2)[0], 1.0)


# -- CasADi -----------------------------------------------------------------------------------------------------------


def test_casadi_takes_libraries_and_no_addresses() -> None:
    x = sg.placeholder((2,), sg.float64)
    with pytest.raises(sg.GraphError, match="cfunc: CasADi loads external functions from shared libraries"):
        sg.Session().compile(sg.sum(x), x).cfunc("casadi")  # type: ignore[arg-type]
